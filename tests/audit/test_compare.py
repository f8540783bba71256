from __future__ import annotations

import numpy as np
import pytest

from intarsia.audit.compare import compare, contrasts
from intarsia.core.errors import DataError
from intarsia.core.study import Measure, Observation, Report, Result


def result(target, *measures, study="s", style="chat"):
    made = Result(study=study, kind="audit", question="?", target=target, measures=measures)
    return made.model_copy(update={"provenance": made.provenance.model_copy(update={"options": {"style": style}})})


def measure(values, name="accuracy", binary=True, better="more", items_hash="h", ids=None):
    ids = ids or [f"i{i}" for i in range(len(values))]
    return Measure(
        name=name,
        unit="share" if binary else "tokens",
        better=better,
        binary=binary,
        observations=tuple(
            Observation(id=i, value=float(v), slices={"half": "low" if n < len(ids) / 2 else "high"})
            for n, (i, v) in enumerate(zip(ids, values, strict=True))
        ),
        items_hash=items_hash,
    )


def one(x, y, **options):
    (found,) = contrasts([result("a", measure(x, **options)), result("b", measure(y, **options))], ("a", "b"))
    return found


def test_the_pairing_is_what_is_tested():
    # Same marginals, opposite pairings: an unpaired test could not tell these apart.
    x = [1] * 30 + [0] * 30
    nested = one(x, [1] * 20 + [0] * 40)
    crossed = one(x, [0] * 25 + [1] * 5 + [1] * 15 + [0] * 15)
    assert nested.difference == pytest.approx(crossed.difference)
    assert (nested.only_a, nested.only_b) == (10, 0)
    assert (crossed.only_a, crossed.only_b) == (25, 15)
    assert nested.state == "worse"
    assert crossed.state == "no difference shown"


def test_p_value_is_the_exact_binomial():
    from scipy.stats import binomtest

    found = one([1] * 12 + [0] * 20, [1] * 2 + [0] * 10 + [1] * 3 + [0] * 17)
    assert found.p_value == pytest.approx(binomtest(10, 13).pvalue)


def test_pairs_go_by_id_not_by_place():
    ids = [f"q{i}" for i in range(20)]
    x = [i % 2 for i in range(20)]
    a = result("a", measure(x, ids=ids))
    b = result("b", measure(x[::-1], ids=ids[::-1]))
    (found,) = contrasts([a, b], ("a", "b"))
    assert found.difference == 0
    assert (found.only_a, found.only_b) == (0, 0)


def test_other_questions_are_not_comparable():
    (found,) = contrasts(
        [result("a", measure([1, 0], items_hash="x")), result("b", measure([1, 0], items_hash="y"))], ("a", "b")
    )
    assert found.state == "not comparable"
    assert found.p_value is None


def test_less_is_better_turns_the_verdict():
    x, y = np.full(40, 10.0), np.full(40, 20.0) + np.arange(40)
    assert one(x, y, binary=False, better="less").state == "worse"
    assert one(x, y, binary=False, better="more").state == "better"
    neither = one(x, y, binary=False, better="neither")
    assert neither.state == "no difference shown"
    assert neither.p_holm is None


def test_holm_over_all_measures():
    rng = np.random.default_rng(3)
    names = [f"m{i}" for i in range(30)]
    a = result("a", *(measure(rng.integers(0, 2, 80), name=name) for name in names))
    b = result("b", *(measure(rng.integers(0, 2, 80), name=name) for name in names))
    found = contrasts([a, b], ("a", "b"))
    assert min(c.p_value for c in found) < 0.1
    assert all(c.state == "no difference shown" for c in found)
    assert all(c.p_holm >= c.p_value for c in found)


def test_what_n_pairs_can_show():
    few, many = one([1, 0] * 10, [1, 0] * 10), one([1, 0] * 100, [1, 0] * 100)
    assert few.detectable > many.detectable > 0
    assert many.items_for_half > 200


def test_equal_real_values_need_no_items():
    found = one(np.ones(10), np.ones(10), binary=False)
    assert found.detectable == 0
    assert found.items_for_half is None
    assert found.state == "no difference shown"


def test_a_different_style_of_asking_is_said():
    (found,) = contrasts(
        [result("a", measure([1, 0]), style="chat"), result("b", measure([1, 0]), style="plain")], ("a", "b")
    )
    assert "chat" in found.reason
    assert "plain" in found.reason


def test_finished_audits_compare_like_one_audit(tmp_path):
    x, y = [1] * 30 + [0] * 10, [0] * 12 + [1] * 18 + [0] * 10
    together = one(x, y)
    for name, values in (("a", x), ("b", y)):
        Report(title=name, targets=(name,), results=(result(name, measure(values)),)).save(tmp_path / name)
    later = compare(tmp_path / "a", tmp_path / "b" / "report.json")
    assert later.contrasts == (together,)
    with pytest.raises(DataError, match="2 models"):
        compare(later, later)


def test_the_same_model_twice_is_before_and_after():
    report = Report(title="m", targets=("m",), results=(result("m", measure([1, 0, 1])),))
    assert compare(report, report).targets == ("m (before)", "m (after)")


def test_nothing_shared_is_an_error():
    a = Report(title="a", targets=("a",), results=(result("a", measure([1, 0])),))
    b = Report(title="b", targets=("b",), results=(result("b", measure([1, 0]), study="other"),))
    with pytest.raises(DataError, match="share no measure"):
        compare(a, b)


def test_other_examples_and_other_room_are_said():
    sides = []
    for name, shots, room in (("a", 3, 16), ("b", 0, 2048)):
        made = result(name, measure([1, 0, 1]))
        data = {"stories": {"shots": shots, "max_new_tokens": room}}
        sides.append(made.model_copy(update={"provenance": made.provenance.model_copy(update={"data": data})}))
    (found,) = contrasts(sides, ("a", "b"))
    assert "stories with 3 and 0 worked examples" in found.reason
    assert "16 and 2048 new tokens" in found.reason


def test_holm_changes_a_verdict():
    """One of 20 measures has p = 0.039 by itself; in 20 looks that shows nothing."""
    x, y = [1] * 8 + [0] * 32, [0] * 8 + [1] + [0] * 31
    names = [f"m{i}" for i in range(20)]
    same = [1, 0] * 20
    a = result("a", measure(x, name=names[0]), *(measure(same, name=name) for name in names[1:]))
    b = result("b", measure(y, name=names[0]), *(measure(same, name=name) for name in names[1:]))
    first = contrasts([a, b], ("a", "b"))[0]
    alone = contrasts([result("a", measure(x)), result("b", measure(y))], ("a", "b"))[0]
    assert alone.p_holm == pytest.approx(alone.p_value)
    assert first.p_value == pytest.approx(alone.p_value)
    assert first.p_holm == pytest.approx(20 * first.p_value)
    assert (alone.state, first.state) == ("worse", "no difference shown")


def test_the_figures_say_which_model_is_which():
    found = one([1] * 20 + [0] * 10, [0] * 20 + [0] * 5 + [1] * 5)
    assert (found.value_a, found.value_b) == (pytest.approx(20 / 30), pytest.approx(5 / 30))
    assert found.difference == pytest.approx(-0.5)
    assert (found.only_a, found.only_b) == (20, 5)
    assert found.interval.low < -0.5 < found.interval.high < 0
    assert found.state == "worse"
    turned = contrasts(
        [result("a", measure([1] * 20 + [0] * 10)), result("b", measure([0] * 25 + [1] * 5))], ("a", "b"), "b"
    )[0]
    assert (turned.a, turned.state) == ("b", "better")


def test_questions_that_one_side_did_not_answer_are_told():
    ids = [f"i{n}" for n in range(20)]
    a, b = measure([1, 0] * 10, ids=ids), measure([1, 0] * 8, ids=ids[:16])
    (found,) = contrasts([result("a", a), result("b", b)], ("a", "b"))
    assert found.n == 16
    assert "4 questions that only one of the two answered are left out" in found.reason


def test_values_that_no_paired_test_can_take_are_refused():
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        measure([1, 0.5])
    with pytest.raises(ValueError, match="same item"):
        measure([1, 0], ids=["x", "x"])
    with pytest.raises(ValueError, match="finite"):
        measure([1, float("nan")], binary=False)
