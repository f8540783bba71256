from __future__ import annotations

import base64
import hashlib
import re
import xml.etree.ElementTree as ElementTree
from functools import lru_cache
from html.parser import HTMLParser

import pytest
import sample
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.report import html as html_module
from intarsia.core.report import outline, to_html
from intarsia.core.study import Claim, Example, Passage, Remedy, Report, Result, Table


@lru_cache
def whole(targets: int) -> str:
    return to_html(sample.report(targets))


VOID = {"meta", "link", "img", "br", "hr", "input", "col"}


class Page(HTMLParser):
    """The page as its elements, with every open element closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.wrong: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if len({key for key, _ in attrs}) != len(attrs):
            self.wrong.append(f"twice the same attribute in {tag}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing")

    def handle_data(self, data):
        if not self.open or self.open[-1] not in {"style", "script"}:
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def said(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module", params=["one", "two", "empty", "crowded"])
def page(request):
    if request.param in {"one", "two"}:
        return Page(whole({"one": 1, "two": 2}[request.param]))
    return Page(to_html({"empty": sample.empty(), "crowded": sample.crowded()}[request.param]))


def with_answer(text: str) -> Report:
    example = Example(id="1", title=text, passages=(Passage(label=text, text=text, marks=((0, 3),)),))
    claim = Claim(name="c", question=text, state="fail", reason=text, details={text: text})
    table = Table(title=text, columns=(text,), rows=((text,),))
    result = Result(
        study="s", kind="audit", question=text, target=text, headline=text, claims=(claim,), tables=(table,),
        examples=(example,), notes=(text,),
    )  # fmt: skip
    return Report(title=text, targets=(text,), results=(result,))


def test_the_page_is_well_formed(page):
    assert page.wrong == []
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [a["href"] for a in page.all("a")] + [u["href"] for u in page.all("use")]
    assert {link[1:] for link in links} <= set(ids)


def test_the_page_loads_nothing(page):
    for tag, attributes in page.elements:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "form", "image", "foreignobject"}
        for key, value in attributes.items():
            assert key not in {"src", "srcset", "action", "xlink:href", "data"}
            assert not key.startswith("on")
            if key == "href":
                assert value.startswith("#")
            if key == "style":
                assert not re.search(r"url\((?!#)|@import|expression", value)
    style = (html_module.FOLDER / "style.css").read_text()
    assert "url(" not in style
    assert "@import" not in style
    assert "://" not in style + (html_module.FOLDER / "page.js").read_text()


def test_the_policy_allows_only_the_one_script():
    page = whole(2)
    policy = next(meta["content"] for meta in Page(page).all("meta") if meta.get("http-equiv"))
    assert policy.startswith("default-src 'none';")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_what_a_model_wrote_is_shown_and_never_run():
    page = Page(whole(2))
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert "<script>alert('own')</script></style></pre><img src=x onerror=alert(1)>" in page.said
    assert "{{ 7*7 }}" in page.said
    assert "\x1b" not in page.said
    assert "\u241b[31m" in page.said  # the escape character is seen, not sent
    assert "\u202e" not in page.said


@settings(max_examples=15, deadline=None)
@given(
    st.text(st.characters(codec=None), max_size=40) | st.sampled_from([sample.ATTACK, "]]>", "<!--", "\ud800", "\r\n"])
)
def test_no_text_changes_the_structure(text):
    quiet = Page(to_html(with_answer("quiet")))
    page = Page(to_html(with_answer(text)))
    assert page.wrong == []

    def skeleton(one: Page) -> list[str]:
        # An empty text leaves its own element out; only what cannot depend on emptiness is compared then.
        return [tag for tag, _ in one.elements if tag in {"script", "style", "meta", "section", "table", "details"}]

    assert skeleton(page) == skeleton(quiet)
    to_html(with_answer(text)).encode()  # UTF-8 without surrogates


def test_marks_are_highlighted():
    page = whole(1)
    assert "<mark>12</mark> + 30 + 7 = <mark>50.</mark>" in page


def test_a_megabyte_of_output_is_cut_with_a_notice():
    page = to_html(with_answer("y" * 1_000_000))
    assert len(page) < 160_000
    assert "992,000 more characters are in report.json" in page


def test_many_items_are_bounded():
    examples = tuple(Example(id=str(i), title="t") for i in range(500))
    table = Table(columns=("a",), rows=tuple((i,) for i in range(5000)))
    result = Result(study="s", kind="audit", question="q", examples=examples, tables=(table,))
    page = Page(to_html(Report(title="t", results=(result,))))
    assert "460 more examples" in page.said
    assert "4,800 more rows" in page.said
    assert len([d for d in page.all("details") if d.get("class") == "example"]) == html_module.EXAMPLES


def test_the_verdict_table_comes_first_and_says_everything():
    page = Page(whole(2))
    said = page.said
    assert (
        said.index("Verdicts")
        < said.index("Paired comparison")
        < said.index("What can it do, and where does it fail? smollm2")
    )
    for part in (
        "81.0 % [74.0, 87.0]", "majority answer", "\u2265 60.0 %", "house rule: clearly above the floor",
        "3 unparsed", "12 truncated", "6.8 pp", "numbers: 4", "1,234,567", "3 min 21 s", "Fine-tune on sums",
        "intarsia train recipes/sft.yaml", "room:", "[0.4, 7.0] (90 %)",
        "\u221212.0 pp", "[\u221219.0, \u22125.0]", "< 0.001", "exact McNemar", "1,204", "2 slices",
    ):  # fmt: skip
        assert part in said, part
    for word in ("Pass", "Fail", "Inconclusive", "Not measurable", "Skipped", "Better", "Worse", "No difference shown"):
        assert f" {word} " in said, word  # never color alone


def test_what_to_do_comes_before_all_else_what_is_wrong_first_and_each_step_once():
    more = Remedy(text="Ask more.", command="intarsia audit m --budget full")
    states = ("inconclusive", "pass", "fail", "inconclusive", "skipped", "fail", "fail")
    claims = [
        Claim(
            name=f"c{i}", question="?", state=state, remedy=more if state == "inconclusive" else Remedy(text=f"Do {i}.")
        )
        for i, state in enumerate(states)
    ]
    result = Result(study="s", kind="audit", question="?", target="m", claims=tuple(claims))
    report = Report(title="t", targets=("m",), results=(result,))
    assert [(step.state, step.names) for step in outline.steps(report)] == [
        ("fail", ("c2",)), ("fail", ("c5",)), ("fail", ("c6",)), ("inconclusive", ("c0", "c3")), ("skipped", ("c4",)),
    ]  # fmt: skip
    said = Page(to_html(report)).said
    first = said[said.index("What to do first") : said.index("How to read this")]
    assert [text in first for text in ("Do 2.", "Do 5.", "Do 6.", "Ask more.", "Do 1.")] == [True] * 3 + [False] * 2
    assert "2 more stand in the table" in first
    both = Report(title="t", targets=("m", "n"), results=(result, result.model_copy(update={"target": "n"})))
    assert outline.steps(both)[0].names == ("m: c2", "n: c2")
    assert "What to do first" not in to_html(Report(title="t"))


def test_every_badge_has_a_sign_that_exists():
    page = whole(2)
    assert set(re.findall(r'<use href="#(i-[a-z-]+)"', page)) <= set(re.findall(r'<symbol id="(i-[a-z-]+)"', page))


def test_headings_go_down_one_level_at_a_time_and_landmarks_are_there(page):
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    tags = {tag for tag, _ in page.elements}
    assert {"header", "main", "nav", "footer"} <= tags
    for attributes in page.all("th"):
        assert attributes.get("scope") in {"col", "row", "rowgroup"}
    for attributes in page.all("svg"):
        assert attributes.get("aria-hidden") == "true" or attributes.get("aria-label")


def test_equal_reports_give_equal_pages_also_after_a_trip_to_disk(tmp_path):
    sample.report(2).save(tmp_path)
    assert (tmp_path / "report.html").read_text() == whole(2)
    assert to_html(Report.load(tmp_path)) == whole(2)


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(a: str, b: str) -> float:
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_both_themes_can_be_read(theme):
    style = (html_module.FOLDER / "style.css").read_text()
    found = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", style)
    colors = {name: pair[theme] for name, *pair in found}
    text = [("ink", b) for b in ("paper", "sheet", "raised", "mark", "open-bg")]
    text += [("muted", b) for b in ("paper", "sheet")] + [("link", b) for b in ("paper", "sheet")]
    text += [(state, f"{state}-bg") for state in ("pass", "fail", "open", "none")]
    for front, back in text:
        assert _contrast(colors[front], colors[back]) >= 4.5, (front, back)
    for place in range(1, 7):
        assert _contrast(colors[f"fig-{place}"], colors["paper"]) >= 3.0, place


def test_figures_are_xml_too():
    page = whole(1)
    plots = re.findall(r'<svg class="(?:plot|gauge)".*?</svg>', page, re.DOTALL)
    assert len(plots) > len(sample.figures())
    for plot in plots:
        ElementTree.fromstring(plot)


def test_a_report_of_nothing_has_no_empty_lists():
    page = to_html(sample.empty())
    assert not re.search(r"<(dl|ul|table|tbody|tr)[^>]*>\s*</\1>", page)
