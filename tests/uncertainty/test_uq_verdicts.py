"""What is shown of scored answers: rows, plots and measures by hand-made scores, and the folder that holds them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.data import DataSet, Item
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.journal import Journal
from intarsia.core.study import Remedy, canonical_json
from intarsia.uncertainty import rejection, results, verdicts
from intarsia.uncertainty.asking import Asked, ask_set, asked_from, asked_row
from intarsia.uncertainty.candidates import Answer, CandidateSet
from intarsia.uncertainty.metrics import wrong_caught
from intarsia.uncertainty.rejection import rejection_figure
from intarsia.uncertainty.results import ScoredAnswers, figures_of, score_answers
from intarsia.uncertainty.settings import Scoring
from intarsia.uncertainty.threshold import Threshold, as_artefact, fit_threshold
from intarsia.uncertainty.verdicts import Finding, claims, examples, figures, headline, measures, tables, withheld

NONE = Remedy(text="none")


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals are tested with the metrics; here a few hundred draws will do."""
    monkeypatch.setattr(results, "RESAMPLES", 199)
    monkeypatch.setattr(verdicts, "RESAMPLES", 499)
    monkeypatch.setattr(rejection, "RESAMPLES", 99)


def candidates(share: float, *, answer: str = "yes", kind: str = "beam") -> CandidateSet:
    """The answer with a probability of `share`, and another one with the rest."""
    return CandidateSet(
        answer=Answer(answer, (1,), (math.log(share),), 0.1),
        texts=(answer, "other"),
        token_ids=((1,), (2,)),
        logprobs_M=np.log([share, 1 - share]),
        finished_M=np.array([True, True]),
        kind=kind,  # type: ignore[arg-type]
        exact=2 if kind == "beam" else 0,
    )


def asked(shares: list[float], right: list[bool], kind: str = "beam") -> list[Asked]:
    made = []
    for n, (share, good) in enumerate(zip(shares, right, strict=True)):
        item = Item(
            id=f"i{n}", question=f"Is it {n}?", answer="yes" if good else "no", kind="word", slices={"task": str(n % 2)}
        )
        made.append(Asked(item, {"beam": candidates(share, kind=kind)}, 1.0))
    return made


def finding(shares: list[float], right: list[bool], **options: object) -> Finding:
    made = asked(shares, right)
    scoring = Scoring(m=2)
    data = DataSet(name="set", items=tuple(one.item for one in made), sha256="0" * 64)
    return Finding(
        name="set",
        data=data,
        rows=tuple(score_answers(made, scoring)),
        lost=(),
        scoring=scoring,
        source="beam",
        temperature=1.0,
        **options,  # type: ignore[arg-type]
    )


def rows(found: Finding) -> dict[str, object]:
    return {claim.name.partition(".")[0]: claim for claim in claims(found, "quick", NONE, NONE, NONE, NONE)}


def test_a_perfect_order_catches_all_that_can_be_caught() -> None:
    # 10 of 50 are wrong, and they are the least certain ones.
    shares = [0.99 - 0.01 * n for n in range(50)]
    found = finding(shares, [n < 40 for n in range(50)])
    made = rows(found)
    caught = made["caught"]
    assert (caught.value, caught.state) == (1.0, "pass")  # type: ignore[attr-defined]
    assert caught.details["best_possible"] == 1.0  # type: ignore[attr-defined]
    assert caught.details["right_among_given"] == 1.0  # type: ignore[attr-defined]
    assert caught.details["abstain_above"] == pytest.approx(1 - shares[39])  # type: ignore[attr-defined]
    assert made["auroc"].value == 1.0  # type: ignore[attr-defined]
    # The answer's own probability orders them in the same way.
    assert made["gain"].value == 0.0  # type: ignore[attr-defined]
    assert "catches 100% of the wrong answers (at random 20 %)" in headline([found])
    assert "80% right to 100%" in headline([found])


def test_the_reversed_order_catches_nothing_and_fails() -> None:
    shares = [0.5 + 0.0045 * n for n in range(100)]
    made = rows(finding(shares, [n < 80 for n in range(100)]))
    assert (made["caught"].value, made["caught"].state) == (0.0, "fail")  # type: ignore[attr-defined]
    assert (made["auroc"].value, made["auroc"].state) == (0.0, "fail")  # type: ignore[attr-defined]
    assert made["calibration"].state == "pass"  # type: ignore[attr-defined]


def test_six_wrong_answers_of_which_none_was_caught_decide_nothing() -> None:
    # At random that happens in one run of four, and every draw of a bootstrap shows it again.
    shares = [0.5 + 0.008 * n for n in range(60)]
    claim = rows(finding(shares, [n < 54 for n in range(60)]))["caught"]
    assert (claim.value, claim.state) == (0.0, "inconclusive")  # type: ignore[attr-defined]
    assert claim.interval.high > 0.2  # type: ignore[attr-defined]


def test_the_best_that_can_be_done_is_said_where_most_are_wrong() -> None:
    found = finding([0.99 - 0.01 * n for n in range(50)], [n < 10 for n in range(50)])
    caught = rows(found)["caught"]
    assert caught.value == caught.details["best_possible"] == 0.25  # type: ignore[attr-defined]


def test_confidence_that_is_not_earned_fails() -> None:
    made = rows(finding([0.99 - 0.001 * n for n in range(60)], [n % 2 == 0 for n in range(60)]))["calibration"]
    assert (made.state, made.unit) == ("fail", "points")  # type: ignore[attr-defined]
    assert made.value == pytest.approx(0.99 - 0.0295 - 0.5, abs=1e-6)  # type: ignore[attr-defined]
    assert made.worst.name == "task 1"  # type: ignore[attr-defined]
    assert made.worst.value > 0.9  # type: ignore[attr-defined]


def test_what_the_beams_leave_out_is_not_held_against_the_model() -> None:
    # Two beams hold 0.64 together and agree by 0.9 of that: the model may mean its answer by as little as 0.58.
    def shown(held: float) -> dict[str, object]:
        found = finding([0.9 - 0.001 * n for n in range(60)], [n % 5 < 3 for n in range(60)])
        less = [
            replace(row, results={"beam": replace(row.results["beam"], mass=held)}) for row in found.rows
        ]  # fmt: skip
        return rows(replace(found, rows=tuple(less)))

    made = shown(0.64)["calibration"]
    assert (made.state, made.value) == ("inconclusive", pytest.approx(0.27, abs=0.01))  # type: ignore[attr-defined]
    assert "beams leave out" in made.reason  # type: ignore[attr-defined]
    assert made.details["surer_by_at_least"] == pytest.approx(0.64 * 0.87 - 0.6, abs=0.01)  # type: ignore[attr-defined]
    assert shown(1.0)["calibration"].state == "fail"  # type: ignore[attr-defined]


def test_a_similarity_that_is_no_share_has_no_calibration() -> None:
    found = finding([0.99 - 0.01 * n for n in range(50)], [n % 3 > 0 for n in range(50)])
    near = rows(replace(found, scoring=found.scoring.model_copy(update={"similarity": "embedding:minilm-l6"})))
    assert near["calibration"].state == "not measurable"  # type: ignore[attr-defined]
    assert "no share" in near["calibration"].reason  # type: ignore[attr-defined]


def test_an_estimator_that_is_no_probability_has_no_calibration() -> None:
    found = finding([0.99 - 0.01 * n for n in range(50)], [n % 3 > 0 for n in range(50)], estimator="msp")
    made = rows(found)
    assert made["calibration"].state == "not measurable"  # type: ignore[attr-defined]
    assert {measure.name for measure in measures([found])} == {"right.set", "decided.set"}


@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3, 0.4]), st.booleans()), min_size=5, max_size=40),
    st.sampled_from([0.1, 0.2, 0.5, 1.0]),
)
def test_withheld_is_the_expectation_over_the_order_of_ties(pairs: list[tuple[float, bool]], share: float) -> None:
    u_N = np.array([u for u, _ in pairs])
    right_N = np.array([float(right) for _, right in pairs])
    away_N = withheld(u_N, share)
    assert ((away_N >= 0) & (away_N <= 1)).all()
    assert away_N.sum() == pytest.approx(math.floor(share * len(pairs) + 1e-9))
    assert (np.diff(away_N[np.argsort(u_N, kind="stable")]) >= -1e-12).all()
    if not right_N.all():
        caught = wrong_caught(right_N, u_N, share, resamples=0).value
        assert (away_N * (1 - right_N)).sum() / (1 - right_N).sum() == pytest.approx(caught)


def test_the_plot_is_between_random_and_the_best_and_leaves_out_what_is_unknown() -> None:
    right_N = np.array([1.0] * 30 + [0.0] * 10)
    u_N = np.linspace(0, 1, 40)
    figure = rejection_figure(right_N, {"ours": u_N, "unknown": np.full(40, math.nan)}, title="t")
    assert [series.name for series in figure.series] == ["ours", "best possible", "at random"]
    ours, best, random = (series.y for series in figure.series)
    assert ours == best  # this order is perfect
    assert set(random) == {0.75}
    assert ours[0] == 0.75
    assert ours[-1] == 1.0


def test_examples_show_what_was_caught_what_was_missed_and_what_was_wasted() -> None:
    shares = [0.99 - 0.01 * n for n in range(50)]
    right = [n % 2 == 0 for n in range(50)]
    shown = examples([finding(shares, right)])
    titles = [example.title for example in shown]
    assert "wrong, and distrusted" in titles[0]
    assert shown[0].id == "i49"
    assert "wrong, and sure of it" in titles[3]
    assert shown[3].id == "i1"
    assert "right, but distrusted" in titles[-1]
    assert shown[-1].id == "i48"
    assert "0.50  yes" in {passage.label: passage.text for passage in shown[0].passages}["candidates by weight"]


def test_nothing_to_show_is_no_error() -> None:
    assert headline([]) == "There was nothing to ask."
    empty = finding([], [])
    assert "no question was answered" in headline([empty])
    assert (tables([empty]), figures([empty]), examples([empty]), measures([empty])) == ((), (), (), ())
    assert [claim.state for claim in claims(empty, "quick", NONE, NONE, NONE, NONE)] == ["not measurable"]


def test_candidates_come_back_from_plain_data_as_they_were() -> None:
    made = candidates(1 / 3)
    one = Asked(Item(id="a", question="q"), {"sample": candidates(0.7, kind="sample"), "beam": made}, 0.9, "careful")
    again = asked_from(one.item, json.loads(canonical_json(asked_row(one))))
    # The first source is the one that decides.
    assert (again.beam_mass, again.warning, list(again.sets)) == (0.9, "careful", ["sample", "beam"])
    back = again.sets["beam"]
    assert back.logprobs_M.tolist() == made.logprobs_M.tolist()
    assert back.answer == made.answer
    unknown = CandidateSet(Answer("x"), ("x",), ((),), np.array([math.nan]), np.array([True]), "sample")
    (kept,) = asked_from(one.item, json.loads(json.dumps(asked_row(Asked(one.item, {"s": unknown}))))).sets.values()
    assert math.isnan(kept.logprobs_M[0])
    assert math.isnan(kept.answer.entropy)


def test_beams_are_held_against_samples_pair_by_pair() -> None:
    shares = [0.99 - 0.01 * n for n in range(50)]
    made = []
    for n, one in enumerate(asked(shares, [n < 40 for n in range(50)])):
        noisy = candidates(shares[(n * 17) % 50], kind="sample")
        repeated = tuple(noisy.texts[0 if place < round(10 * shares[(n * 17) % 50]) else 1] for place in range(10))
        sampled = CandidateSet(
            one.sets["beam"].answer, repeated, ((),) * 10, np.full(10, math.nan), np.ones(10, dtype=bool), "sample"
        )
        made.append(Asked(one.item, {"beam": one.sets["beam"], "sample": sampled}, 1.0))
    table = figures_of(score_answers(made, Scoring(m=2), ["dissimilarity", "msp"]))
    lines = {(line.candidates, line.estimator): line for line in table}
    assert set(lines) == {("beam", "dissimilarity"), ("answer", "msp"), ("sample", "dissimilarity")}
    ours = lines["beam", "dissimilarity"]
    assert ours.values["prr"] == pytest.approx(1.0)
    assert ours.gain == pytest.approx(1.0 - lines["sample", "dissimilarity"].values["prr"])
    assert ours.gain_p < 0.05
    assert math.isnan(lines["sample", "dissimilarity"].gain)


# --- The folder ------------------------------------------------------------------------------------------------------


def saved(folder: Path, **options: object) -> ScoredAnswers:
    made = asked([0.99 - 0.02 * n for n in range(20)], [n % 3 > 0 for n in range(20)])
    made.append(Asked(Item(id="lost", question="Lost?", answer="x", kind="word"), {}, error="too long"))
    data = DataSet(name="set", items=tuple(one.item for one in made), sha256="0" * 64)
    run = ScoredAnswers({"model": "m", "seed": 0}, data, made, Scoring(m=2, **options), (), {"name": "m"}, ["a note"])  # type: ignore[arg-type]
    run.save(folder)
    return run


@pytest.mark.parametrize("similarity", ["jaccard", "embedding"])
def test_a_folder_comes_back_and_is_computed_anew(
    tmp_path: Path, similarity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if similarity == "embedding":
        from intarsia.uncertainty import similarity as room

        monkeypatch.setattr(room.Embedding, "pairs", lambda self, pairs: np.full(len(pairs), 0.25))
    run = saved(tmp_path / "run", similarity=similarity)
    if similarity == "embedding":
        monkeypatch.setattr(room.Embedding, "pairs", lambda self, pairs: pytest.fail("a model was asked"))
    again = ScoredAnswers.load(tmp_path / "run")
    assert [row.result.scores for row in again.rows] == [row.result.scores for row in run.rows]
    assert [row.result.interval for row in again.rows] == [row.result.interval for row in run.rows]
    assert [one.item.id for one in again.unanswered] == ["lost"]
    assert again.notes == ("a note",)
    assert again.graded
    before = (tmp_path / "run" / "answers.jsonl").read_bytes()
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "answers.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("run.json", '"format": 1', '"format": 99', "format 99"),
        ("run.json", '"kind"', "kind", "damaged"),
        ("run.json", '"m": 2', '"m": "two"', "damaged"),
        ("answers.jsonl", '"text":"yes"', '"text":"yea"', "changed after the run"),
        ("figures.json", '"auroc": 0.', '"auroc": 0.1', "do not follow"),
    ],
)
def test_a_folder_that_was_changed_is_refused(tmp_path: Path, file: str, old: str, new: str, said: str) -> None:
    saved(tmp_path)
    path = tmp_path / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(DataError, match=said) as caught:
        ScoredAnswers.load(tmp_path)
    assert caught.value.hint


def test_scores_that_do_not_follow_from_their_candidates_are_refused(tmp_path: Path) -> None:
    import hashlib

    saved(tmp_path)
    lines = (tmp_path / "answers.jsonl").read_text().replace('"dissimilarity":', '"dissimilarity":1e-2,"x":')
    (tmp_path / "answers.jsonl").write_text(lines)
    run = json.loads((tmp_path / "run.json").read_text())
    run["sha256"]["answers.jsonl"] = hashlib.sha256(lines.encode()).hexdigest()
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(DataError, match="do not follow from its candidates"):
        ScoredAnswers.load(tmp_path)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no run\.json"):
        ScoredAnswers.load(tmp_path)
    saved(tmp_path)
    (tmp_path / "answers.jsonl").unlink()
    with pytest.raises(DataError, match=r"has no answers\.jsonl"):
        ScoredAnswers.load(tmp_path)


# --- The threshold's file --------------------------------------------------------------------------------------------


def artefact(**options: object) -> Threshold:
    found = finding([0.99 - 0.004 * n for n in range(200)], [n < 150 for n in range(200)])
    results = [row.result for row in found.rows]
    fitted = fit_threshold(results, (found.right_N > 0).tolist(), estimator="dissimilarity", **options)  # type: ignore[arg-type]
    return as_artefact(
        fitted,
        estimator="dissimilarity",
        source="beam",
        scoring=found.scoring,
        data=found.data,
        provenance={"name": "m", "sha256": {"a": "1"}, "revision": None},
    )


def test_a_threshold_keeps_its_promise_on_the_file(tmp_path: Path) -> None:
    made = artefact(target_risk=0.2)
    assert made.risk is not None
    assert made.risk_bound is not None
    assert made.risk <= made.risk_bound <= 0.2
    assert made.value is not None
    assert made.answers(made.value)
    assert not made.answers(made.value + 1e-6)
    assert not made.answers(math.nan)
    again = Threshold.load(made.save(tmp_path / "t.json"))
    assert again == made
    everything = artefact(target_coverage=1.0)
    assert everything.coverage == 1.0
    assert everything.guarantee is None


def test_a_threshold_is_of_one_model() -> None:
    made = artefact(target_coverage=0.8)
    made.check_model({"name": "other name", "sha256": {"a": "1"}, "revision": None})
    with pytest.raises(ConfigError, match="not on these weights"):
        made.check_model({"name": "m", "sha256": {"a": "2"}, "revision": None})
    with pytest.raises(ConfigError, match="not on these weights"):
        made.check_model({"name": "m"})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no file"),
        ("", "cannot be read"),
        ("[1]", "no threshold"),
        ('{"kind": "uncertainty threshold", "format": 2}', "format 2"),
        ('{"kind": "uncertainty threshold", "format": 1, "value": "high"}', "damaged"),
    ],
)
def test_a_file_that_is_no_threshold_is_refused(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "t.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=said) as caught:
        Threshold.load(path)
    assert caught.value.hint


# --- On a real, tiny model -------------------------------------------------------------------------------------------


def test_a_question_that_no_window_holds_is_left_out_and_batches_are_resumed_bit_for_bit(
    tmp_path: Path, tiny_model: object, tiny_tokenizer: object
) -> None:
    from intarsia.core.local import LocalTarget

    target = LocalTarget(tiny_model, tiny_tokenizer, "tiny", batch_rows=12)
    items = [Item(id=f"i{n}", question=f"{'fox ' * (n % 5)}{n}?", answer="x", kind="word") for n in range(9)]
    items.insert(4, Item(id="long", question="dog " * 3000, answer="x", kind="word"))
    data = DataSet(name="set", items=tuple(items), sha256="0" * 64)
    scoring = Scoring(m=3, max_new_tokens=3, stops=(), on_low_mass="hybrid", style="plain")
    with Journal(tmp_path / "whole.jsonl") as journal:
        whole = ask_set(target, data, scoring, ["beam"], journal=journal)
        kept = list(journal.keys())
        (lost,) = [one for one in whole if one.error]
        assert lost.item.id == "long"
        assert not lost.sets
        assert len(kept) == 9
        with Journal(tmp_path / "part.jsonl") as part:
            part.append({key: journal.get(key) for key in kept[:4]})
    with Journal(tmp_path / "part.jsonl") as part:
        resumed = ask_set(target, data, scoring, ["beam"], journal=part)
    assert [asked_row(one) for one in resumed] == [asked_row(one) for one in whole]
    # A random model is flat: what three beams hold is known, and they gave way to samples.
    for one in whole:
        if one.sets:
            assert one.beam_mass is not None
            assert (one.sets["beam"].kind == "hybrid") == (one.beam_mass < 0.5)
            assert ("scored from" in one.warning) == (one.beam_mass < 0.5)
            assert one.sets["beam"].mass <= one.beam_mass + 1e-6
    assert any(one.sets and one.sets["beam"].kind == "hybrid" for one in whole)
