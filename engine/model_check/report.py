"""The results of a model check, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class Problem(NamedTuple):
    """A reason why the model does not load. `part`: configuration, weights, tokenizer or memory."""

    part: str
    says: str


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes on a device. `kv_tokens`: tokens of KV that fit next to weights and workspace, if every layer keeps all of
    them. `kv_tokens_by_length`: if windows give memory back, lengths of sequences, and how many tokens fit in sequences
    of each length. `budgeted_sequences`: how many sequences can run at once, whatever their length within the context,
    each with a KV budget of `kv_budget` tokens. `keeps_all`: why they cannot have one; empty if they can.
    """

    device: str
    weights: int
    workspace: int
    available: int
    kv_tokens: int
    kv_bytes_per_token: float
    kv_tokens_by_length: tuple[tuple[int, int], ...]
    kv_budget: int
    budgeted_sequences: int
    keeps_all: str
    dtype: str


@dataclass(frozen=True, slots=True)
class TextReport:
    """The tokenizer: the file it is read from, and the tokens that end a generation.

    `template_options`: variables of the chat template that requests can set; None without a template.
    """

    file: str
    vocabulary: int
    ends: tuple[str, ...]
    template_options: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ModelReport:
    """A field is None if an earlier problem prevented its check.

    `stored`: bytes of the model's tensors by stored type. `container`: the multimodal architecture whose text part is
    used. `rope`: the variant of rotary embedding. `through_transformers`: the engine has no family for it, so that its
    tensors are compared with its configuration only when it loads.
    """

    path: str
    form: str
    files: int = 0
    stored: Mapping[str, int] = field(default_factory=dict)
    family: str | None = None
    through_transformers: bool = False
    container: str | None = None
    parameters: int | None = None
    layers: int | None = None
    context: int | None = None
    rope: str | None = None
    text: TextReport | None = None
    memory: MemoryReport | None = None
    values_checked: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def loads(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """The report as plain values under stable keys."""
        problems = [problem._asdict() for problem in self.problems]
        return {"loads": self.loads, **asdict(self), "problems": problems}
