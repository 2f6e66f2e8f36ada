"""How long a step takes on an H200, by counts and measured rates: its parts are added, as if nothing overlapped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from thothy_ai.engine.scheduling.scheduler import StepPlan

MEMORY = 0.9 * 139.8 * 2**30  # of an H200
WORKSPACE = 5 * 2**30
COPY, GEMM, GEMM_FP8, PREFILL = 4.3e12, 690e12, 1140e12, 300e12
DECODE = 0.88 * COPY
ELEMENTWISE = 3.5e12
STEP_SECONDS = 0.3e-3


@dataclass(frozen=True)
class Device:
    """Counts of a model, and the seconds that a step of it takes."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocab: int
    head_dim: int = 128
    gemm: float = GEMM
    weight_bytes: int = 2

    @property
    def parameters(self) -> int:
        """Of the layers."""
        projections = 2 * self.heads + 2 * self.kv_heads
        return self.layers * self.hidden * (projections * self.head_dim + 3 * self.inner)

    @property
    def kv_bytes(self) -> int:
        """A token's, over all layers."""
        return 4 * self.layers * self.kv_heads * self.head_dim

    @property
    def pool_tokens(self) -> int:
        """What memory leaves."""
        weights = self.parameters * self.weight_bytes + 4 * self.vocab * self.hidden
        return int((MEMORY - WORKSPACE - weights) / self.kv_bytes)

    def parts(self, plan: StepPlan) -> Counter[str]:
        """Seconds of a step by what they go to."""
        tokens, samplers = plan.tokens, sum(member.samples for member in plan.members)
        pairs = sum(m.count * (m.end - (m.count - 1) / 2) for m in plan.members if m.count > 1)
        read = sum(member.end for member in plan.members if member.count == 1)
        spared = sum((group.size - 1) * group.shared for group in plan.groups)
        head = self.hidden * self.vocab * 2
        elements = self.layers * (8 * self.hidden + 3 * self.inner + 2 * (self.heads + 2 * self.kv_heads) * 128)
        return Counter(
            gemm=max(2 * tokens * self.parameters / self.gemm, self.parameters * self.weight_bytes / COPY),
            head=max(samplers * head / GEMM, head / COPY) if samplers else 0.0,
            decode=(read - spared) * self.kv_bytes / DECODE,
            prefill=4 * self.layers * self.heads * self.head_dim * pairs / PREFILL,
            elementwise=2 * tokens * elements / ELEMENTWISE,
            fixed=STEP_SECONDS,
        )


LLAMA = Device(32, 4096, 14336, 32, 8, 128_256)
QWEN = Device(28, 1024, 3072, 16, 8, 151_936)
