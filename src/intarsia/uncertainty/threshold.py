"""A threshold that was fitted on labelled questions, as a small file: where a model's answers are to be withheld."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from intarsia.core.data import DataSet, Item
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.journal import write_atomic
from intarsia.core.study import canonical_json
from intarsia.uncertainty.beamuq import UQResult
from intarsia.uncertainty.selective import Guarantee, SelectiveClassifier
from intarsia.uncertainty.settings import Scoring

FORMAT = 1


class Threshold(BaseModel):
    """Where to abstain, and what that rests on.

    Attributes:
        format: Version of the file.
        kind: What the file is.
        value: Answers of at most this uncertainty are given; None where all are.
        estimator: The uncertainty.
        source: Where candidates come from.
        scoring: How answers are made and scored.
        limit: Most tokens of an answer.
        target_risk: Largest share of wrong answers among those given; None for a target coverage.
        target_coverage: Share of questions to answer; None for a target risk.
        guarantee: What is promised of the risk, see `SelectiveClassifier`.
        level: Probability with which the promise holds.
        coverage: Share of the calibration questions that are answered.
        risk: Share of wrong answers among them; None where none is.
        risk_bound: What holds for new questions from the same law with probability `level`; None without a guarantee.
        items: Calibration questions.
        model: What is known of the model.
        data: What is known of the questions.
        examples: Worked examples that its prompts showed.
        system: System prompt.
        template: Wording of the questions.
        seed: Of samples and of the fit.
        versions: Of the software.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    kind: Literal["uncertainty threshold"] = "uncertainty threshold"
    value: float | None
    estimator: str
    source: str
    scoring: Scoring
    limit: int
    target_risk: float | None = None
    target_coverage: float | None = None
    guarantee: Guarantee | None = None
    level: float = 0.95
    coverage: float
    risk: float | None = None
    risk_bound: float | None = None
    items: int
    model: dict[str, JsonValue] = Field(default_factory=dict)
    data: dict[str, JsonValue] = Field(default_factory=dict)
    examples: tuple[Item, ...] = ()
    system: str = ""
    template: str = ""
    seed: int = 0
    versions: dict[str, str] = Field(default_factory=dict)

    def answers(self, uncertainty: float) -> bool:
        """Whether an answer of that uncertainty is given; one of unknown uncertainty is not."""
        return not math.isnan(uncertainty) and (self.value is None or uncertainty <= self.value)

    def check_model(self, provenance: Mapping[str, Any]) -> None:
        """Refuse another model than the one that it was fitted on.

        Raises:
            ConfigError: It is another one: a threshold says nothing of it.
        """
        mine, its = _fingerprint(self.model), _fingerprint(provenance)
        if mine != its:
            raise ConfigError(
                f"The threshold was fitted on {self.model.get('name', 'another model')}, not on these weights of "
                f"{provenance.get('name', 'the model')}.",
                "Fit one for this model: intarsia uncertainty threshold.",
            )

    def save(self, path: str | Path) -> Path:
        """Write the file, whole or not at all."""
        return write_atomic(path, json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Threshold:
        """Read a file that `save` wrote.

        Raises:
            DataError: It is missing, damaged, something else, or of another version.
        """
        hint = "Make it with: intarsia uncertainty threshold MODEL --data SET --risk 0.2 --out threshold.json"
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DataError(f"There is no file {path}.", hint) from None
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}.", hint) from None
        if not isinstance(found, dict) or found.get("kind") != "uncertainty threshold":
            raise DataError(f"{path} is no threshold.", hint)
        if found.get("format") != FORMAT:
            raise DataError(
                f"{path} has format {found.get('format')!r}.", f"This release reads format {FORMAT}; fit it again."
            )
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise DataError(f"{path} is damaged: {where}: {first['msg']}.", hint) from None


def fit_threshold(
    results: Sequence[UQResult],
    right: Sequence[bool],
    *,
    estimator: str,
    target_risk: float | None = None,
    target_coverage: float | None = None,
    guarantee: Guarantee | None = "fixed-sequence",
    level: float = 0.95,
    seed: int = 0,
) -> SelectiveClassifier:
    """A fitted `SelectiveClassifier` on scored answers.

    Raises:
        ConfigError: The targets make no sense.
        DataError: There are no answers, an uncertainty is unknown, or no threshold reaches the target.
    """
    chosen = SelectiveClassifier(
        target_risk=target_risk, target_coverage=target_coverage, guarantee=guarantee, level=level, random_state=seed
    )
    return chosen.fit([one.scores[estimator] for one in results], [float(one) for one in right])


def as_artefact(
    fitted: SelectiveClassifier,
    *,
    estimator: str,
    source: str,
    scoring: Scoring,
    data: DataSet,
    provenance: Mapping[str, Any],
    system: str = "",
    template: str = "",
    seed: int = 0,
) -> Threshold:
    """The file's content for a fitted classifier."""
    return Threshold(
        value=None if math.isinf(fitted.threshold_) else fitted.threshold_,
        estimator=estimator,
        source=source,
        scoring=scoring,
        limit=scoring.limit(data),
        target_risk=fitted.target_risk,
        target_coverage=fitted.target_coverage,
        guarantee=fitted.guarantee if fitted.target_risk is not None else None,
        level=fitted.level,
        coverage=fitted.coverage_,
        risk=None if math.isnan(fitted.risk_) else fitted.risk_,
        risk_bound=None if math.isnan(fitted.risk_bound_) else fitted.risk_bound_,
        items=fitted.n_items_,
        model=json.loads(canonical_json(dict(provenance))),
        data={"name": data.name, "origin": data.origin, "licence": data.licence, "sha256": data.sha256},
        examples=data.shots,
        system=system,
        template=template,
        seed=seed,
        versions={"intarsia": version("intarsia")},
    )


def _fingerprint(provenance: Mapping[str, Any]) -> bytes:
    """Weights where they are known, else the name."""
    said = provenance.get("sha256") or provenance.get("name")
    return canonical_json([said, provenance.get("revision") if provenance.get("sha256") else None])
