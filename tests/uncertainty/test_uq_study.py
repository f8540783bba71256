"""The audit study: abstaining is held against abstaining at random, on answers whose probabilities are known."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from intarsia.audit.config import AuditConfig, study_options
from intarsia.audit.engine import run_audit
from intarsia.core.data import DataSet, Item
from intarsia.core.errors import BackendError, ConfigError, IntarsiaError
from intarsia.core.journal import Journal
from intarsia.core.report import to_html
from intarsia.core.study import Context, Report, Result
from intarsia.core.target import Prompt, Target
from intarsia.uncertainty import question_sets, rejection, verdicts
from intarsia.uncertainty.study import ITEMS, Uncertainty, UncertaintyOptions
from tests.uncertainty.answerers import END, WORDS, Server, TableTarget, graded, lawful, questions

assert lawful  # a fixture, used by name
pytestmark = pytest.mark.usefixtures("lawful")


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals are tested with the metrics; here a few hundred draws will do."""
    monkeypatch.setattr(verdicts, "RESAMPLES", 299)
    monkeypatch.setattr(rejection, "RESAMPLES", 49)


def flat(n: int) -> tuple[float, ...]:
    return (0.125,) * len(WORDS)


def run(target: Target, data: DataSet | None = None, *, budget: str = "quick", **context: object) -> Result:
    options = {"sets": (), "temperature": 1.0, **context.pop("options", {})}  # type: ignore[dict-item]
    return Uncertainty().run(
        Context(
            target=target,
            data=questions() if data is None else data,
            options=UncertaintyOptions(**options),  # type: ignore[arg-type]
            budget=budget,  # type: ignore[arg-type]
            **context,  # type: ignore[arg-type]
        )
    )


def test_an_uncertainty_that_follows_the_law_catches_more_than_chance() -> None:
    result = run(TableTarget(), questions(80), options={"items": 80})
    claim = result.claim("caught.own")
    assert claim.state == "pass"
    assert claim.value is not None
    assert claim.value > 0.3
    assert claim.control is not None
    assert claim.control.value == pytest.approx(0.2)
    assert claim.interval is not None
    assert claim.interval.low >= 0.2
    assert claim.n == 80
    assert "temperature 1, 10 beams" in claim.reason
    right = claim.details["right_as_asked"]
    assert claim.details["right_among_given"] > right  # type: ignore[operator]
    assert result.claim("auroc.own").value == pytest.approx(0.75, abs=0.15)
    # Ten beams hold all eight answers.
    mass = result.claim("mass.own")
    assert (mass.value, mass.state) == (0.0, "pass")
    assert mass.details["mean_mass"] == 1.0
    assert mass.details["certified_width"] == pytest.approx(0.0, abs=1e-6)
    # Answers were drawn from the law, so agreement with itself is how often the model is right.
    assert abs(result.claim("calibration.own").value or 0.0) < 0.12


def test_the_score_is_the_expected_dissimilarity_of_the_law() -> None:
    data = questions(20)
    result = run(TableTarget(), data)
    (measure,) = [one for one in result.measures if one.name == "brier.own"]
    for observation in measure.observations:
        n = int(observation.id.removeprefix("q"))
        sure = max(graded(n))
        right = float(data.items[n].answer == WORDS[int(np.argmax(graded(n)))])
        assert observation.value == pytest.approx((sure - right) ** 2, abs=1e-5)


def test_shuffled_answers_are_not_caught() -> None:
    data = questions(80)
    rng = np.random.default_rng(3)
    golds = rng.choice(WORDS, len(data.items))
    # Right answers that have nothing to do with the law: right one time in three, whatever the model's certainty.
    items = tuple(
        item.model_copy(update={"answer": WORDS[int(np.argmax(graded(n)))] if rng.random() < 0.33 else str(gold)})
        for n, (item, gold) in enumerate(zip(data.items, golds))
    )
    claim = run(TableTarget(), data.model_copy(update={"items": items}), options={"items": 80}).claim("caught.own")
    assert claim.state == "inconclusive"
    assert claim.remedy is not None
    assert "--budget standard" in claim.remedy.command


def test_beams_that_hold_too_little_are_counted_and_give_way_to_samples() -> None:
    claim = (result := run(TableTarget(flat), options={"m": 3})).claim("mass.own")
    assert (claim.state, claim.value) == ("fail", 1.0)
    assert claim.details["fallen_back"] == claim.n == 40
    assert claim.details["mean_mass"] == pytest.approx(0.375)
    assert "scored from beams and samples" in claim.reason
    assert claim.remedy is not None
    assert "--set uncertainty.m=6" in claim.remedy.command
    warned = run(TableTarget(flat), options={"m": 3, "on_low_mass": "warn"}).claim("mass.own")
    assert warned.details["fallen_back"] == 0
    assert result.headline


@pytest.mark.parametrize(
    ("right", "said"), [(True, "too few wrong ones to catch"), (False, "abstaining on some of them helps nobody")]
)
def test_a_set_that_is_all_right_or_all_wrong_is_not_measurable(right: bool, said: str) -> None:
    data = questions()
    items = tuple(
        item.model_copy(update={"answer": WORDS[int(np.argmax(graded(n)))] if right else "nothing"})
        for n, item in enumerate(data.items)
    )
    result = run(TableTarget(), data.model_copy(update={"items": items}))
    claim = result.claim("caught.own")
    assert claim.state == "not measurable"
    assert said in claim.reason
    assert claim.value is None
    assert claim.remedy is not None
    assert "--data" in claim.remedy.command
    assert said in result.headline
    assert not result.figures or result.figures[0].kind == "histogram"


def test_one_that_answers_always_the_same_way_knows_nothing() -> None:
    result = run(Server(lambda n: (1.0, 0, 0, 0, 0, 0, 0, 0), logprobs=False), questions(80))
    claim = result.claim("caught.own")
    assert claim.state == "not measurable"
    assert "equally uncertain" in claim.reason


def test_a_server_with_log_probabilities_and_one_with_text_only() -> None:
    data = questions(60)
    told = run(Server(), data, options={"items": 60})
    assert told.claim("caught.own").value == pytest.approx(
        run(TableTarget(), data, options={"items": 60}).claim("caught.own").value or 0, abs=0.2
    )
    assert "samples by log-probability" in told.claim("caught.own").reason
    assert told.claim("gain.own").state != "not measurable"
    assert told.claim("mass.own").state == "not measurable"
    assert "hold" in told.claim("mass.own").reason
    text = run(Server(logprobs=False), data, options={"items": 60, "temperature": 0.5})
    assert text.claim("caught.own").state in ("pass", "inconclusive")
    assert "temperature 1, 10 samples" in text.claim("caught.own").reason
    assert any("at temperature 1" in note for note in text.notes)
    assert text.claim("gain.own").state == "not measurable"
    # Without probabilities there is no baseline to draw.
    names = [series.name for series in text.figures[0].series]
    assert names == ["candidates agree", "best possible", "at random"]
    assert len(told.figures[0].series) == 4


def test_one_question_that_a_server_refuses_does_not_take_the_others_with_it() -> None:
    def refuses(prompt: Prompt) -> bool:
        return "animal is 3?" in str(prompt)

    result = run(Server(fail_on=refuses), questions(60), options={"items": 60})
    claim = result.claim("caught.own")
    assert claim.n == 59
    assert claim.unparsed == 1
    assert "1 questions without an answer" in claim.reason
    with pytest.raises(BackendError, match="answered none of 60"):
        run(Server(fail_on=lambda prompt: True), questions(60), options={"items": 60})


def test_a_killed_study_goes_on_to_the_same_body(tmp_path: Path) -> None:
    whole_target = TableTarget(flat)
    whole = run(whole_target, options={"m": 3})

    def kill(count: int) -> None:
        if count == 2:
            raise KeyboardInterrupt

    with Journal(tmp_path / "j.jsonl") as journal, pytest.raises(KeyboardInterrupt):
        run(TableTarget(flat, before=kill), options={"m": 3}, journal=journal)
    again = TableTarget(flat)
    with Journal(tmp_path / "j.jsonl") as journal:
        assert len(journal) == 16
        resumed = run(again, options={"m": 3}, journal=journal)
    assert resumed.body() == whole.body()
    assert 0 < again.batches_made < whole_target.batches_made
    third = TableTarget(flat)
    with Journal(tmp_path / "j.jsonl") as journal:
        assert run(third, options={"m": 3}, journal=journal).body() == whole.body()
    assert third.batches_made == 0


def test_a_killed_study_of_a_server_goes_on_to_the_same_body(tmp_path: Path) -> None:
    whole = run(Server())
    calls = 0

    def kill(count: int, prompt: Prompt) -> None:
        nonlocal calls
        calls = count
        if count == 100:
            raise KeyboardInterrupt

    with Journal(tmp_path / "j.jsonl") as journal, pytest.raises(KeyboardInterrupt):
        run(Server(before=kill), journal=journal)
    again = Server()
    with Journal(tmp_path / "j.jsonl") as journal:
        resumed = run(again, journal=journal)
    assert resumed.body() == whole.body()
    assert calls == 100
    assert len(again.calls) < 40 * 11


def test_other_options_never_meet_the_candidates_of_these(tmp_path: Path) -> None:
    with Journal(tmp_path / "j.jsonl") as journal:
        run(TableTarget(), journal=journal)
        for change in ({"m": 4}, {"temperature": 0.7}, {"max_new_tokens": 3}):
            target = TableTarget()
            run(target, options=change, journal=journal)
            assert target.batches_made > 0, change
        target = TableTarget()
        run(target, options={"similarity": "exact"}, journal=journal)
        assert target.batches_made == 0, "candidates do not depend on how they are compared"


def test_two_models_are_compared_item_by_item(tmp_path: Path) -> None:
    def sharper(n: int) -> tuple[float, ...]:
        return tuple(np.array(graded(n)) ** 3 / (np.array(graded(n)) ** 3).sum())

    data = tmp_path / "animals.jsonl"
    rows = [item.model_dump_json(include={"id", "question", "answer"}) for item in questions().items]
    data.write_text("\n".join(rows) + "\n")
    config = AuditConfig(
        models=("a", "b"),
        studies=("uncertainty",),
        budget="smoke",
        data=str(data),
        options={"uncertainty": {"sets": [], "items": 40, "temperature": 1.0}},
    )
    targets = {"a": TableTarget(name="a"), "b": TableTarget(sharper, name="b")}
    report = run_audit(config, tmp_path / "audit", studies={"uncertainty": Uncertainty()}, targets=targets)
    contrasts = {contrast.measure: contrast for contrast in report.contrasts}
    assert set(contrasts) == {"right.own", "decided.own", "brier.own"}
    assert contrasts["right.own"].difference == 0.0
    assert contrasts["brier.own"].n == 40
    assert (contrasts["brier.own"].difference or 0) > 0  # surer than it is right
    assert (tmp_path / "audit" / "report.html").is_file()


def test_the_report_shows_the_plot_and_what_was_said() -> None:
    result = run(TableTarget())
    kinds = [figure.kind for figure in result.figures]
    assert kinds == ["lines", "histogram"]
    curve = {series.name: series for series in result.figures[0].series}
    assert set(curve) == {"candidates agree", "the answer's own probability", "best possible", "at random"}
    best, ours = curve["best possible"].y, curve["candidates agree"].y
    assert all((a or 0) <= (b or 0) + 1e-9 for a, b in zip(ours, best, strict=True))
    assert len(set(curve["at random"].y)) == 1
    assert len(curve["candidates agree"].low) == len(ours)
    outcomes = {example.outcome for example in result.examples}
    assert outcomes >= {"good", "bad"}
    for example in result.examples:
        passages = {passage.label: passage.text for passage in example.passages}
        weights = [
            float(line.split()[0]) for line in passages["candidates by weight"].splitlines() if line[0].isdigit()
        ]
        assert weights == sorted(weights, reverse=True)
        wrong = passages["answer"] != passages["right answer"]
        assert wrong == (example.outcome != "neutral")
    html = to_html(Report(title="t", targets=("table",), results=(result,)))
    assert "Abstaining on own" in html


def test_the_remedy_is_a_command_that_is_there() -> None:
    from typer.main import get_command

    from intarsia.uncertainty.commands import app

    claim = run(TableTarget(), questions(80), options={"items": 80, "m": 6, "merge_texts": True}).claim("caught.own")
    assert claim.remedy is not None
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for part in claim.remedy.command.split(" && "):
        words = shlex.split(part)
        assert words[:2] == ["intarsia", "uncertainty"]
        known = {flag for option in commands[words[2]].params for flag in option.opts}
        flags = [word for word in words[3:] if word.startswith("--")]
        assert set(flags) <= known
        assert flags
    assert "--m 6" in claim.remedy.command
    assert "--merge-texts" in claim.remedy.command


def test_the_remedy_brings_the_preset_and_the_place_of_the_set(tmp_path: Path) -> None:
    file = tmp_path / "known_1000" / "known_1000.json"
    file.parent.mkdir()
    rows = [
        {
            "prompt": f"Animal {n} is called",
            "attribute": WORDS[n % 8] if n % 20 < 15 else "nothing",
            "relation_id": "P17",
            "subject": f"{n}",
        }
        for n in range(60)
    ]
    file.write_text(json.dumps(rows))
    options = {"preset": "paper", "similarity": "jaccard", "root": str(tmp_path), "sets": ("known_1000",), "items": 50}
    made = Uncertainty().run(Context(target=TableTarget(), options=UncertaintyOptions(**options)))  # type: ignore[arg-type]
    remedy = made.claim("caught.known_1000").remedy
    assert remedy is not None
    words = shlex.split(remedy.command)
    assert words[words.index("--path") + 1] == str(file)
    assert words[words.index("--preset") + 1] == "paper"
    assert words[words.index("--similarity") + 1] == "jaccard"
    assert "--temperature" not in words


def test_a_similarity_that_cannot_be_had_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    target = TableTarget()
    with pytest.raises(IntarsiaError, match="nowhere"):
        run(target, options={"similarity": f"nli:{tmp_path / 'nowhere'}"})
    assert target.batches_made == 0


def test_the_default_is_the_packaged_facts_and_sets_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []

    def load(name: str, **options: object) -> DataSet:
        asked.append((name, options["limit"]))  # type: ignore[arg-type]
        return questions(20).model_copy(update={"name": name})

    monkeypatch.setattr(question_sets, "load", load)
    Uncertainty().run(Context(target=TableTarget(), budget="smoke"))
    assert asked == [("facts", ITEMS["smoke"])]
    assert UncertaintyOptions().temperature == 0.5
    result = Uncertainty().run(Context(target=TableTarget(), budget="standard"))
    assert {claim.name for claim in result.claims} >= {"caught.facts", "caught.known_1000", "caught.webquestions"}


def test_sets_that_were_named_and_are_not_there_are_skipped_with_the_reason(tmp_path: Path) -> None:
    result = run(TableTarget(), options={"sets": ("known_1000",), "root": str(tmp_path)})
    claim = result.claim("caught.known_1000")
    assert claim.state == "skipped"
    assert "not at hand" in claim.reason
    with pytest.raises(ConfigError, match="Did you mean known_1000"):
        run(TableTarget(), options={"sets": ("known1000",)})


def test_questions_without_short_answers_are_not_measurable() -> None:
    items = tuple(Item(id=f"i{n}", question=f"Write about {n}.", kind="free") for n in range(10))
    result = run(TableTarget(), DataSet(name="mine", items=items, sha256="0" * 64))
    assert result.claim("caught.own").state == "not measurable"
    assert "no short right answers" in result.claim("caught.own").reason


def test_unicode_questions_and_a_system_prompt_and_a_template() -> None:
    data = questions(20)
    items = tuple(
        item.model_copy(update={"question": f"\U0001f600 Tier Nr. \u00e4 {n}?"}) for n, item in enumerate(data.items)
    )
    seen: list[Prompt] = []
    server = Server(before=lambda count, prompt: seen.append(prompt))
    run(
        server,
        data.model_copy(update={"items": items}),
        system="Be brief.",
        template="Q: {question} A:",
        options={"m": 2},
    )
    assert seen[0] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Q: \U0001f600 Tier Nr. \u00e4 0? A:"},
    ]


def test_the_plan_is_an_upper_bound() -> None:
    server = Server()
    data = questions()
    context = Context(target=server, data=data, options=UncertaintyOptions(sets=()), budget="quick")
    plan = Uncertainty().plan(context)
    Uncertainty().run(context)
    assert len(server.calls) == plan.calls == 40 * 11
    assert "40 questions" in plan.steps[0]
    assert Uncertainty().plan(Context(options=UncertaintyOptions(), budget="smoke")).calls == 20 * 11


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"estimator": "disimilarity"}, "Did you mean 'dissimilarity'"),
        ({"similarity": "jacard"}, "Did you mean 'jaccard'"),
        ({"m": 0}, "greater than or equal to 1"),
        ({"m": 10**9}, "less than or equal to 1000"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 0}, "greater than 0"),
        ({"mass_floor": float("inf")}, "mass_floor"),
        ({"candidates": "stored"}, "intarsia uncertainty score"),
        ({"shotz": 2}, "shots"),
    ],
)
def test_wrong_options_are_one_clear_line(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        study_options(Uncertainty(), options)  # type: ignore[arg-type]
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_beams_are_asked_of_weights_only_and_one_candidate_is_warned_of() -> None:
    with pytest.raises(ConfigError, match="shows no weights"):
        run(Server(), options={"candidates": "beam"})
    result = run(TableTarget(), options={"m": 1})
    assert any("consistency says nothing" in note for note in result.notes)
    assert result.claim("caught.own").state == "not measurable"
    assert len(WORDS) == END


@pytest.mark.model
@pytest.mark.slow
def test_the_embedded_model_at_smoke_budget() -> None:
    with Target.parse("smollm2-135m") as target:
        study = Uncertainty()
        result = study.run(Context(target=target, options=UncertaintyOptions(), budget="smoke"))
        assert result.claim("mass.facts").n == ITEMS["smoke"]
        assert result.claim("caught.facts").n == ITEMS["smoke"]
        # One question that no window holds does not take the others with it.
        items = (*questions(2).items, Item(id="long", question="x " * 20_000, answer="y", kind="word"))
        data = DataSet(name="mine", items=items, sha256="0" * 64)
        long = study.run(Context(target=target, data=data, options=UncertaintyOptions(sets=()), budget="smoke"))
        assert long.claim("caught.own").n == 2
        assert long.claim("caught.own").unparsed == 1
