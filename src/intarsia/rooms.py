"""The one table of rooms: wing, paper, commands, studies and recipes, by dotted name.

Plain data. The command line, the audit and the documentation read it, and import a room only when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from intarsia.core.errors import ConfigError

if TYPE_CHECKING:
    from intarsia.core.study import Study

Wing: TypeAlias = Literal["examine", "protect", "generate", "train", "solve"]
State: TypeAlias = Literal["planned", "ready"]

WINGS: Mapping[Wing, str] = MappingProxyType(
    {
        "examine": "find out what is wrong with a model",
        "protect": "guard it, or show how it can be attacked",
        "generate": "steer, mark, speed up and feed its answers",
        "train": "mend it, or teach it something new",
        "solve": "research rooms beside the main path",
    }
)

NO_RECIPES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Room:
    """One system, as one sub-package.

    Attributes:
        name: The sub-package, `intarsia.<name>`.
        wing: What a user comes for; see `WINGS`.
        system: The system's own name and what it is, in a few words.
        title: The paper's title.
        paper: `arXiv:<id>` or `OpenReview:<id>`.
        venue: Where it was published.
        summary: What it does for a user, in one line.
        state: `ready` once `intarsia.<name>` can be imported, `planned` before.
        commands: Dotted name of its Typer app (`intarsia.<name>.commands:app`), empty for none.
        audit_studies: Dotted names of the studies that an audit runs.
        reproductions: Dotted names of the studies behind `intarsia reproduce <name>`.
        recipe_kinds: Kind in a recipe -> dotted name of the class that reads and runs it.
    """

    name: str
    wing: Wing
    system: str
    title: str
    paper: str
    venue: str
    summary: str
    state: State = "planned"
    commands: str = ""
    audit_studies: tuple[str, ...] = ()
    reproductions: tuple[str, ...] = ()
    recipe_kinds: Mapping[str, str] = field(default_factory=lambda: NO_RECIPES)

    @property
    def package(self) -> str:
        """The dotted name of the sub-package."""
        return f"intarsia.{self.name}"

    @property
    def paper_url(self) -> str:
        """Where the paper can be read."""
        archive, _, number = self.paper.partition(":")
        if archive == "arXiv":
            return f"https://arxiv.org/abs/{number}"
        return f"https://openreview.net/forum?id={number}"


ROOMS: tuple[Room, ...] = (
    Room(
        name="robustness",
        wing="examine",
        system="MSCR, a multi-source candidate replacement attack",
        title="MSCR: Exploring the Vulnerability of LLMs' Mathematical Reasoning Abilities Using Multi-Source "
        "Candidate Replacement",
        paper="arXiv:2511.08055",
        venue="ICLR 2026",
        summary="Changes one word of a math question at a time and counts how many right answers survive.",
        state="ready",
        commands="intarsia.robustness.commands:app",
        audit_studies=("intarsia.robustness.study:Robustness",),
        reproductions=(
            "intarsia.robustness.proof.exact:Exact",
            "intarsia.robustness.proof.tiny:Tiny",
            "intarsia.robustness.proof.real:Real",
            "intarsia.robustness.proof.hardened:Hardened",
        ),
        recipe_kinds=MappingProxyType({"harden": "intarsia.robustness.harden:HardenRecipe"}),
    ),
    Room(
        name="sycophancy",
        wing="examine",
        system="ELEPHANT, a benchmark of social sycophancy",
        title="ELEPHANT: Measuring and understanding social sycophancy in LLMs",
        paper="arXiv:2505.13995",
        venue="ICLR 2026",
        summary="Measures how often a model flatters its user instead of answering, and what reduces it.",
        state="ready",
        commands="intarsia.sycophancy.commands:app",
        audit_studies=("intarsia.sycophancy.study:Sycophancy",),
        reproductions=(
            "intarsia.sycophancy.proof.metrics:Metrics",
            "intarsia.sycophancy.proof.judges:Judges",
            "intarsia.sycophancy.proof.nudge:NudgeProof",
            "intarsia.sycophancy.proof.steering:SteeringProof",
            "intarsia.sycophancy.proof.dpo:DPOProof",
        ),
        recipe_kinds=MappingProxyType({"dpo": "intarsia.sycophancy.dpo_recipe:DPORecipe"}),
    ),
    Room(
        name="uncertainty",
        wing="examine",
        system="beam-search candidates for consistency-based uncertainty",
        title="Don't Throw Away Your Beams: Improving Consistency-based Uncertainties in LLMs via Beam Search",
        paper="arXiv:2512.09538",
        venue="ICLR 2026",
        summary="Says which short answers to distrust, from beams instead of random samples.",
        state="ready",
        commands="intarsia.uncertainty.commands:app",
        audit_studies=("intarsia.uncertainty.study:Uncertainty",),
        reproductions=(
            "intarsia.uncertainty.proof.exact:Exact",
            "intarsia.uncertainty.proof.taught:Taught",
            "intarsia.uncertainty.proof.real:Real",
        ),
    ),
    Room(
        name="knowledge",
        wing="examine",
        system="MMEVOKE, a benchmark of evolving multimodal knowledge",
        title="When Large Multimodal Models Confront Evolving Knowledge: Challenges and Explorations",
        paper="arXiv:2505.24449",
        venue="ICLR 2026",
        summary="Tests whether a model took in new facts, what it forgot for them, and the remedies.",
    ),
    Room(
        name="transfer_attacks",
        wing="protect",
        system="a semantically consistent generative attack with an EMA teacher",
        title="Improving Black-Box Generative Attacks via Generator Semantic Consistency",
        paper="arXiv:2506.18248",
        venue="ICLR 2026",
        summary="Trains a generator whose bounded image perturbations carry over to models it never saw.",
    ),
    Room(
        name="guidance",
        wing="generate",
        system="AGD, attribution-guided decoding",
        title="Attribution-Guided Decoding",
        paper="arXiv:2509.26307",
        venue="ICLR 2026",
        summary="Picks, among likely next tokens, the one that rests most on the part of the prompt you name.",
    ),
    Room(
        name="watermark",
        wing="generate",
        system="ENS, an ensemble of unbiased watermarks",
        title="An Ensemble Framework for Unbiased Language Model Watermarking",
        paper="arXiv:2509.24043",
        venue="ICLR 2026",
        summary="Marks generated text with several keys without changing its distribution, and detects the mark.",
    ),
    Room(
        name="speculation",
        wing="generate",
        system="CAST, cost-aware dynamic-tree speculative decoding",
        title="Inference-Cost-Aware Dynamic Tree Construction for Efficient Inference in Large Language Models",
        paper="arXiv:2510.26577",
        venue="ICLR 2026",
        summary="Drafts a token tree whose size follows the measured cost of your device; the output law is unchanged.",
    ),
    Room(
        name="compression",
        wing="generate",
        system="OSCAR, online soft compression and reranking for RAG",
        title="OSCAR: Online Soft Compression for RAG",
        paper="arXiv:2504.07109",
        venue="ICLR 2026",
        summary="Turns each retrieved passage into a few soft tokens that depend on the question.",
    ),
    Room(
        name="preference",
        wing="train",
        system="SoLoPO, short-to-long preference optimization",
        title="SoLoPO: Unlocking Long-Context Capabilities in LLMs via Short-to-Long Preference Optimization",
        paper="arXiv:2505.11166",
        venue="ICLR 2026",
        summary="Learns preferences on short contexts and carries the rewards over to long ones.",
    ),
    Room(
        name="coevolution",
        wing="train",
        system="CoMAS, co-evolving multi-agent systems",
        title="CoMAS: Co-Evolving Multi-Agent Systems via Interaction Rewards",
        paper="arXiv:2510.08529",
        venue="ICLR 2026",
        summary="Lets several models improve each other by discussion, without gold answers.",
    ),
    Room(
        name="reasoning",
        wing="train",
        system="GAR, a generative adversarial reasoner",
        title="Generative Adversarial Reasoner: Enhancing LLM Reasoning with Adversarial Reinforcement Learning",
        paper="arXiv:2512.16917",
        venue="ICLR 2026",
        summary="Trains a reasoner together with a discriminator that judges its reasoning slice by slice.",
    ),
    Room(
        name="kernels",
        wing="train",
        system="CUDA-L1, contrastive reinforcement learning for kernels",
        title="CUDA-L1: Improving CUDA Optimization via Contrastive Reinforcement Learning",
        paper="arXiv:2507.14111",
        venue="ICLR 2026",
        summary="Lets a model write faster kernels, verified and timed in a sandbox, and learn from the timings.",
    ),
    Room(
        name="binding",
        wing="train",
        system="concept binding against the Reversal Curse",
        title="Is the Reversal Curse a Binding Problem? Uncovering Limitations of Transformers from a Basic "
        "Generalization Failure",
        paper="arXiv:2504.01928",
        venue="ICLR 2026",
        summary="Predicts the next concept instead of the next token, so that a fact is learned in both directions.",
    ),
    Room(
        name="recommendation",
        wing="train",
        system="IDIOMoE, a mixture of item-id and language experts",
        title="Catalog-Native LLM: Speaking Item-ID dialect with Less Entanglement for Recommendation",
        paper="arXiv:2510.05125",
        venue="ICLR 2026",
        summary="Teaches a language model a catalog of items without spoiling its language.",
    ),
    Room(
        name="optim",
        wing="train",
        system="adaptive smoothness and accelerated adaptive optimizers",
        title="A Tale of Two Geometries: Adaptive Optimizers and Non-Euclidean Descent",
        paper="arXiv:2511.20584",
        venue="ICLR 2026",
        summary="Adaptive and steepest-descent optimizers of one family, and a report on which geometry fits.",
    ),
    Room(
        name="merging",
        wing="protect",
        system="MSD, a module-switching defense",
        title="Defending against Backdoor Attacks via Module Switching",
        paper="arXiv:2504.05902",
        venue="ICLR 2026",
        summary="Merges fine-tuned models module by module so that a backdoor in any of them breaks.",
    ),
    Room(
        name="planning",
        wing="solve",
        system="VI2N, value iteration with value of information",
        title="Information-based Value Iteration Networks for Decision Making Under Uncertainty",
        paper="OpenReview:if1Ndb6RWD",
        venue="ICLR 2026",
        summary="A differentiable planner that goes and looks before it goes for the reward.",
    ),
    Room(
        name="clustering",
        wing="solve",
        system="CLIB, a calibrated information bottleneck",
        title="Calibrated Information Bottleneck for Trusted Multi-modal Clustering",
        paper="OpenReview:iedlZOdI0d",
        venue="ICLR 2026",
        summary="Clusters samples seen in several views, with confidences that can be trusted.",
    ),
)
"""All nineteen, in the order in which they are shown."""

AUDIT_STUDIES: tuple[tuple[str, str], ...] = (("capability", "intarsia.audit.capability:Capability"),)
"""The hall's own audit studies: (name, dotted name of the class)."""


def room(name: str) -> Room:
    """The room of that name; `-` and `_` are the same.

    Raises:
        ConfigError: There is none; the hint names the nearest.
    """
    wanted = name.strip().lower().replace("-", "_")
    names = [each.name for each in ROOMS]
    if wanted in names:
        return ROOMS[names.index(wanted)]
    near = get_close_matches(wanted, names, n=1)
    hint = f"Did you mean {near[0]}?" if near else "`intarsia rooms` lists them."
    raise ConfigError(f"There is no room called {name!r}.", hint)


def load(dotted: str) -> Any:
    """Import what `package.module:Name` names; the module is imported only now."""
    module, _, attribute = dotted.partition(":")
    return getattr(import_module(module), attribute)


def audit_studies() -> list[Study]:
    """All studies that an audit can run: the hall's, then the rooms', in order."""
    dotted = [name for _, name in AUDIT_STUDIES] + [name for each in ROOMS for name in each.audit_studies]
    return [load(name)() for name in dotted]


def reproductions(name: str) -> list[Study]:
    """The studies behind `intarsia reproduce <name>`; none for a room that is not built yet.

    Raises:
        ConfigError: There is no such room.
    """
    return [load(dotted)() for dotted in room(name).reproductions]


def recipe_kinds() -> dict[str, str]:
    """Recipe kind -> dotted name of its recipe class, over all rooms; the hall's own are in `core.recipes.KINDS`."""
    return {kind: dotted for each in ROOMS for kind, dotted in each.recipe_kinds.items()}
