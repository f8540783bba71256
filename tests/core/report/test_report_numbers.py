from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.report import numbers
from intarsia.core.report.clean import cut, one_line, printable, segments
from intarsia.core.study import Interval


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.675, "share", "67.5 %"),
        (0.0, "share", "0.0 %"),
        (1.0, "share", "100.0 %"),
        (0.0004, "share", "0.04 %"),
        (0.032, "points", "+3.2 pp"),
        (-0.12, "points", "-12.0 pp"),
        (0.0, "points", "0.0 pp"),
        (3.4, "ratio", "3.4x"),
        (1234.6, "ratio", "1,235x"),
        (0.052, "ratio", "0.052x"),
        (12345, "tokens", "12,345 tokens"),
        (41.26, "tokens", "41.3 tokens"),
        (1.2345678, "nats", "1.235 nats"),
        (0.25, "seconds", "0.25 s"),
        (99.97, "seconds", "100 s"),
        (200.0, "seconds", "3 min 20 s"),
        (3599.7, "seconds", "1 h 00 min"),
        (7500, "seconds", "2 h 05 min"),
        (1e6, "count", "1,000,000"),
        (0.1234567, "", "0.1235"),
        (None, "share", "\u2014"),
    ],
)
def test_a_figure_is_written_by_its_unit(value, unit, shown):
    assert numbers.show(value, unit) == shown


def test_differences_of_shares_are_points_and_others_keep_their_unit():
    assert numbers.show_difference(0.1, "share") == "+10.0 pp"
    assert numbers.show_difference(-1204, "tokens") == "-1,204 tokens"
    assert numbers.show_difference(0, "tokens") == "0 tokens"
    assert numbers.show_distance(0.045, "share") == "4.5 pp"
    assert numbers.show_difference_interval(Interval(low=-12, high=1500), "tokens") == "[-12, +1,500]"


def test_intervals_name_an_unusual_level():
    assert numbers.show_interval(Interval(low=0.62, high=0.726), "share") == "[62.0, 72.6]"
    assert numbers.show_interval(Interval(low=0.62, high=0.726, level=0.9), "share") == "[62.0, 72.6] (90 %)"
    assert numbers.show_interval(None, "share") == ""


@pytest.mark.parametrize(
    ("p", "shown"),
    [(0.0, "< 0.001"), (0.00099, "< 0.001"), (0.034, "0.034"), (0.41, "0.41"), (1.0, "1"), (None, "\u2014")],
)
def test_p_values(p, shown):
    assert numbers.show_p(p) == shown


def test_memory_is_in_binary_units():
    assert numbers.memory(512) == "512 B"
    assert numbers.memory(2_400_000_000) == "2.24 GiB"
    assert numbers.memory(1002 * 2**20) == "1002 MiB"


@given(
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["share", "points", "ratio", "tokens", "nats"])
)
def test_every_finite_figure_can_be_shown_on_one_line(value, unit):
    text = numbers.show(value, unit)
    assert text
    assert "\n" not in text
    assert "nan" not in text.split()[0]


@given(st.floats(min_value=0, max_value=1))
def test_a_shown_share_is_the_share(value):
    assert abs(float(numbers.number(value, "share")) / 100 - value) <= 0.0005001


@given(st.floats(min_value=0, max_value=1e7))
def test_a_shown_duration_is_the_duration(seconds):
    parts = numbers.duration(seconds).split()
    scale = {"h": 3600, "min": 60, "s": 1}
    total = sum(float(amount) * scale[unit] for amount, unit in zip(parts[::2], parts[1::2]))
    assert abs(total - seconds) <= max(
        0.06 * min(seconds, 1), 0.05 if seconds < 99.95 else 0.51 if total < 3600 else 31
    )


@given(st.text())
def test_printable_keeps_offsets_and_drops_every_control(text):
    shown = printable(text)
    assert len(shown) == len(text)
    assert not any(
        (ord(c) < 0x20 and c not in "\t\n") or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in shown
    )
    assert "\n" not in one_line(text)


@given(
    st.text(max_size=60),
    st.lists(st.tuples(st.integers(-10, 80), st.integers(-10, 80)), max_size=6),
    st.integers(1, 80),
)
def test_segments_are_the_text_again_with_each_marked_character_marked(text, marks, limit):
    pieces, left_out = segments(text, tuple(marks), limit)
    assert "".join(piece for piece, _ in pieces) == printable(text[:limit])
    assert left_out == max(0, len(text) - limit)
    flags = [marked for piece, marked in pieces for _ in piece]
    assert flags == [any(start <= i < end for start, end in marks) for i in range(len(text[:limit]))]


def test_a_cut_says_how_much_is_missing():
    assert cut("abc", 3) == "abc"
    assert cut("x" * 1_000_010, 10).startswith("x" * 10 + " ")
    assert "1,000,000 more characters" in cut("x" * 1_000_010, 10)
