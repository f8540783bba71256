"""The report as JUnit XML, for continuous integration.

A test suite is one (model, study), a test case one claim. `fail` is a failure. `inconclusive`, `not measurable` and
`skipped` are skipped cases with the reason, since nothing was shown either way; `--fail-on` is what turns an open
question into a failed build.
"""

from __future__ import annotations

from xml.etree import ElementTree

from intarsia.core.report import numbers, outline
from intarsia.core.report.clean import cut, printable
from intarsia.core.study import Report, Result

FIELD_LIMIT = 4000


def to_junit(report: Report) -> str:
    """An XML document. Characters that XML forbids are replaced by visible ones.

    Args:
        report: What to write.

    Returns:
        The document with its declaration, UTF-8.
    """
    counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    root = ElementTree.Element("testsuites", {"name": _text(report.title)})
    for _, results in outline.studies(report):
        for result in results:
            suite = _suite(result)
            root.append(suite)
            for key in counts:
                counts[key] += int(suite.attrib[key])
    root.attrib.update({key: str(value) for key, value in counts.items()})
    root.set("time", f"{report.run.wall_seconds:.3f}")
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _suite(result: Result) -> ElementTree.Element:
    failures = sum(claim.state == "fail" for claim in result.claims)
    skipped = sum(claim.holds is None for claim in result.claims)
    name = f"{result.target} / {result.study}" if result.target else result.study
    suite = ElementTree.Element(
        "testsuite",
        {
            "name": _text(name),
            "tests": str(len(result.claims)),
            "failures": str(failures),
            "errors": "0",
            "skipped": str(skipped),
            "time": f"{result.run.wall_seconds:.3f}",
        },
    )
    if result.run.started:
        suite.set("timestamp", _text(result.run.started))
    for entry in outline.rows([result]):
        claim = entry.claim
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {"classname": _text(name), "name": _text(claim.name), "time": f"{entry.seconds or 0.0:.3f}"},
        )
        said = [
            claim.question,
            f"effect: {numbers.show_with_interval(claim.value, claim.interval, claim.unit)}",
            f"n / unparsed / truncated: {numbers.items(claim.n, claim.unparsed, claim.truncated)}",
        ]
        if claim.control is not None:
            said.append(f"held against: {numbers.show(claim.control.value, claim.unit)} ({claim.control.name})")
        if claim.threshold is not None:
            said.append(f"threshold: {outline.threshold_text(claim)} ({claim.threshold.origin})")
        if claim.detectable is not None:
            said.append(f"smallest detectable difference: {numbers.show_distance(claim.detectable, claim.unit)}")
        if claim.remedy is not None:
            said.append(f"what to do: {claim.remedy.text} {claim.remedy.command}".rstrip())
        reason = outline.explanation(claim)
        body = _text("\n".join(said))
        if claim.state == "fail":
            failure = ElementTree.SubElement(case, "failure", {"type": "fail", "message": _text(reason)})
            failure.text = body
        elif claim.holds is None:
            ElementTree.SubElement(case, "skipped", {"message": _text(f"{claim.state}: {reason}")})
            ElementTree.SubElement(case, "system-out").text = body
        else:
            ElementTree.SubElement(case, "system-out").text = body
    return suite


def _text(text: str) -> str:
    return printable(cut(text, FIELD_LIMIT))
