"""How long a step takes on an H200, by counts and measured rates: its parts are added, as if nothing overlapped."""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from dataclasses import dataclass

from thothy_ai.engine.api.step import Step

MEMORY = 0.9 * 139.8 * 2**30  # of an H200
WORKSPACE = 5 * 2**30
COPY, GEMM, GEMM_FP8, PREFILL = 4.3e12, 690e12, 1140e12, 300e12
DECODE = 0.88 * COPY
ELEMENTWISE = 3.5e12
STEP_SECONDS = 0.3e-3
LAUNCH_SECONDS = 0.4e-3  # of the host, per layer of a step without a graph: no such step is shorter
GAP_SECONDS = 25e-6  # between the kernels of a layer without a graph


@dataclass(frozen=True)
class Gemms:
    """Seconds of a layer's GEMMs: at a constant rate, never less than a few rows were measured to take.

    `measured` are (rows, microseconds) of a layer; without any, reading the weights is the lower bound.
    """

    rate: float
    weight_bytes: int
    measured: tuple[tuple[int, float], ...] = ()

    def seconds(self, rows: int, parameters: int) -> float:
        """Seconds for `rows` tokens through a layer with this number of parameters."""
        place = bisect(self.measured, (rows, float("inf")))
        if 0 < place < len(self.measured):
            (low, below), (high, above) = self.measured[place - 1 : place + 1]
            return (below + (above - below) * (rows - low) / (high - low)) * 1e-6
        least = self.measured[-1][1] * 1e-6 if self.measured else parameters * self.weight_bytes / COPY
        return max(2 * rows * parameters / self.rate, least)


PLAIN = Gemms(GEMM, 2)
LLAMA_BF16 = Gemms(  # measured on an H200; graphs pad 448 rows to 512
    GEMM, 2,
    ((1, 118), (64, 127), (128, 136), (192, 164), (256, 187), (320, 217), (384, 243), (448, 307), (512, 307),
     (640, 406), (768, 500), (896, 576), (1024, 681), (1152, 739), (1280, 791), (1408, 927), (1536, 987),
     (1792, 1208), (2048, 1323), (2560, 1659), (4096, 2662), (6144, 3936), (8192, 5217)),
)  # fmt: skip
LLAMA_FP8 = Gemms(
    GEMM_FP8, 1,
    ((1, 99), (128, 99), (192, 118), (256, 129), (384, 165), (512, 190), (640, 281), (768, 321), (896, 347),
     (1024, 406), (1152, 486), (1280, 481), (1408, 551), (1536, 604), (1792, 685), (2048, 761), (2560, 938),
     (4096, 1549), (6144, 2194), (8192, 3340)),
)  # fmt: skip


@dataclass(frozen=True)
class Device:
    """Sizes of a model, and the seconds that its steps take."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocab: int
    gemms: Gemms
    head_dim: int = 128

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer."""
        projections = 2 * self.heads + 2 * self.kv_heads
        return self.hidden * (projections * self.head_dim + 3 * self.inner)

    @property
    def kv_bytes(self) -> int:
        """Bytes of one token's KV over all layers."""
        return 4 * self.layers * self.kv_heads * self.head_dim

    @property
    def pool_tokens(self) -> int:
        """Tokens of KV that fit beside the weights."""
        weights = self.layers * self.layer_parameters * self.gemms.weight_bytes + 4 * self.vocab * self.hidden
        return int((MEMORY - WORKSPACE - weights) / self.kv_bytes)

    def parts(self, step: Step) -> Counter[str]:
        """Seconds of a step, by part."""
        tokens, sampling = step.num_tokens, step.num_sampling
        single = step.counts == 1
        pairs = float((step.counts * (step.ends - (step.counts - 1) / 2))[~single].sum())
        read = int(step.ends[single].sum())
        saved = int(((step.groups.sizes - 1) * step.groups.shared).sum())
        head = self.hidden * self.vocab * 2
        elements = self.layers * (8 * self.hidden + 3 * self.inner + 2 * (self.heads + 2 * self.kv_heads) * 128)
        parts = Counter(
            gemm=self.layers * self.gemms.seconds(tokens, self.layer_parameters),
            head=max(sampling * head / GEMM, head / COPY) if sampling else 0.0,
            decode=(read - saved) * self.kv_bytes / DECODE,
            prefill=4 * self.layers * self.heads * self.head_dim * pairs / PREFILL,
            elementwise=2 * tokens * elements / ELEMENTWISE,
            fixed=STEP_SECONDS if single.all() else STEP_SECONDS + self.layers * GAP_SECONDS,
        )
        if not single.all():
            parts["fixed"] += max(0.0, self.layers * LAUNCH_SECONDS - parts.total())
        return parts


LLAMA = Device(32, 4096, 14336, 32, 8, 128_256, LLAMA_BF16)
QWEN = Device(28, 1024, 3072, 16, 8, 151_936, PLAIN)
