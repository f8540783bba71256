from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import matplotlib
import pytest
import sample
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.report import draw
from intarsia.core.study import Figure, Series

KINDS = ("bars", "lines", "scatter", "histogram", "forest", "heatmap")


def texts(svg: str) -> list[str]:
    return ["".join(node.itertext()) for node in ElementTree.fromstring(svg).iter("text")]


def paths(svg: str, color: str) -> int:
    return len(re.findall(rf"(?:fill|stroke):var\({color},", svg))


@pytest.mark.parametrize("figure", sample.figures(), ids=lambda figure: figure.title)
def test_a_figure_is_deterministic_themed_and_closed(figure):
    svg = draw(figure, "a").svg
    assert draw(figure, "a").svg == svg
    root = ElementTree.fromstring(svg)
    assert "://" not in svg
    assert not re.search(r"(?<!,)#[0-9a-f]{6}", svg), "a color that the theme cannot change"
    ids = [node.attrib["id"] for node in root.iter() if "id" in node.attrib]
    assert len(ids) == len(set(ids))
    assert all(one.startswith("a-") for one in ids)
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
    assert {left or right for left, right in used} <= set(ids)
    assert root.attrib["aria-label"]


def test_two_figures_in_a_page_share_no_id():
    figure = sample.figures()[0]
    first, second = draw(figure, "a").svg, draw(figure, "b").svg
    assert set(re.findall(r' id="([^"]+)"', first)).isdisjoint(re.findall(r' id="([^"]+)"', second))


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    before = dict(matplotlib.rcParams)
    matplotlib.rcParams["font.size"] = 31
    try:
        svg = draw(sample.figures()[0], "a").svg
        assert matplotlib.rcParams["font.size"] == 31
    finally:
        matplotlib.rcParams["font.size"] = before["font.size"]
    assert draw(sample.figures()[0], "a").svg == svg


def test_bars_stand_where_the_data_are():
    figure = Figure(title="t", kind="bars", y_unit="share", series=(Series(name="s", x=("a", "b"), y=(0.25, 0.5)),))
    svg = draw(figure).svg
    assert {"a", "b", "25.0", "50.0"} <= set(texts(svg))
    bars = [node.attrib["d"] for node in ElementTree.fromstring(svg).iter("path") if "--fig-1" in node.attrib["style"]]
    heights = []
    for bar in bars:
        ys = [float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", bar)]
        heights.append(max(ys) - min(ys))
    assert heights[1] / heights[0] == pytest.approx(2.0, rel=0.01)


def test_intervals_and_the_reference_are_drawn():
    series = Series(name="s", x=("a", "b"), y=(0.2, 0.5), low=(0.1, 0.4), high=(0.3, 0.6))
    plain = Figure(title="t", kind="bars", series=(series.model_copy(update={"low": (), "high": ()}),))
    whiskers = Figure(title="t", kind="bars", series=(series,), reference=(0.25, "chance"))
    assert paths(draw(whiskers).svg, "--fig-ink") > paths(draw(plain).svg, "--fig-ink")
    assert "chance" in texts(draw(whiskers).svg)
    assert "chance" not in texts(draw(plain).svg)


def test_a_series_without_intervals_has_no_whiskers():
    cloud = Figure(title="t", kind="scatter", series=(Series(name="s", x=(1, 2, 3), y=(1, 2, 3)),))
    root = ElementTree.fromstring(draw(cloud).svg)
    assert not [
        node for node in root.iter("path") if "--fig-1" in node.attrib.get("style", "") and "id" not in node.attrib
    ]


def test_a_missing_value_breaks_a_line_and_leaves_a_heat_cell_empty():
    whole = Figure(title="t", kind="lines", series=(Series(name="s", x=(1, 2, 3, 4), y=(1, 2, 3, 4)),))
    broken = Figure(title="t", kind="lines", series=(Series(name="s", x=(1, 2, 3, 4), y=(1, None, 3, 4)),))

    def moves(figure):
        lines = [
            node.attrib["d"]
            for node in ElementTree.fromstring(draw(figure).svg).iter("path")
            if "fill:none" in node.attrib.get("style", "") and "--fig-1" in node.attrib["style"]
        ]
        return sum(line.count("M") for line in lines)

    assert moves(broken) == moves(whole) + 1
    heat = Figure(title="t", kind="heatmap", series=(Series(name="r", x=("a", "b"), y=(1.0, None)),))
    assert "\u2014" in texts(draw(heat).svg)


def test_nothing_to_draw_is_said():
    for kind in KINDS:
        for series in ((), (Series(name="e"),), (Series(name="n", x=("a",), y=(None,)),)):
            assert texts(draw(Figure(title="t", kind=kind, series=series)).svg) == ["No data to draw"]


def test_text_is_not_read_as_markup_or_mathematics():
    odd = "$x_1$ <b>&\x00\x1b"
    figure = Figure(title="t", kind="bars", x_label=odd, y_label=odd, series=(Series(name=odd, x=(odd,), y=(1.0,)),))
    svg = draw(figure).svg
    assert "$x_1$ <b>&\u2400\u241b" in texts(svg)
    assert "<b>" not in svg


def test_many_points_are_thinned_and_said():
    cloud = Figure(
        title="t", kind="scatter", series=(Series(name="s", x=tuple(range(50_000)), y=tuple(range(50_000))),)
    )
    drawing = draw(cloud)
    assert len(drawing.svg) < 200_000
    assert drawing.note == "One in 34 points of s is drawn."
    bars = Figure(
        title="t", kind="bars", series=(Series(name="s", x=tuple(f"n{i}" for i in range(90)), y=(1.0,) * 90),)
    )
    assert "first 40 of 90" in draw(bars).note


_number = st.none() | st.floats(-1e6, 1e6) | st.sampled_from([0.0, 1e-9, 1.0])


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.lists(
        st.builds(
            Series,
            name=st.text(max_size=12),
            x=st.lists(st.floats(-100, 100) | st.text(max_size=20), max_size=5).map(tuple),
            y=st.lists(_number, max_size=6).map(tuple),
            low=st.lists(_number, max_size=6).map(tuple),
            high=st.lists(_number, max_size=6).map(tuple),
        ),
        max_size=3,
    ).map(tuple),
    st.sampled_from(["share", "points", "ratio", "tokens", "nats", "seconds", "count", ""]),
    st.booleans(),
    st.booleans(),
    st.none() | st.just((0.5, "line")),
)
def test_any_figure_can_be_drawn(kind, series, unit, log_x, log_y, reference):
    figure = Figure(
        title="t", kind=kind, series=series, y_unit=unit, log_x=log_x, log_y=log_y, reference=reference
    )  # fmt: skip
    ElementTree.fromstring(draw(figure).svg)
