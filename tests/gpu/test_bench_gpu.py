"""The drain benchmark's own check of tokens, on a model so small that rounding explains hardly anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thothy_ai.bench.check import check
from thothy_ai.bench.drain import BenchCore, Drained, as_requests
from thothy_ai.bench.models import bench_model
from thothy_ai.bench.workload import TokenDraw, sibling_jobs
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.weights.loader import LoadedModel

pytestmark = pytest.mark.gpu
OPTIONS = EngineOptions(url="", device="cuda", kv_tokens=8192, max_rows=24, max_context=2048)
JOBS = sibling_jobs([(index % 4, 300 + 40 * (index % 4), "hook", 5 + 3 * (index % 9)) for index in range(32)])


def drained_by(loaded: LoadedModel, options: EngineOptions) -> Drained:
    drain = BenchCore(loaded, options)
    try:
        return drain.run(as_requests(JOBS, TokenDraw(loaded.config.vocab_size, "gpu"), "job"))
    finally:
        drain.close()


@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({"dtype": "float16"}, 0.02),
        ({"dtype": "bfloat16"}, 0.05),
        ({"weights": "fp8"}, 0.3),
        ({"kv_dtype": "fp8"}, 0.15),
        ({"weights": "fp8", "kv_dtype": "fp8"}, 0.3),
        ({"kv_tokens": 1024}, 0.05),
    ],
    ids=["fp16", "bf16", "fp8 weights", "fp8 KV", "all fp8", "a small pool"],
)
def test_tokens_are_those_of_the_references(changes: dict[str, str], tolerance: float, *, graphs: bool) -> None:
    options = replace(OPTIONS, graphs=graphs, **changes)
    loaded = bench_model("tiny", options)
    checked = check(drained_by(loaded, options), loaded.model, options, tolerance)
    assert checked.agreeing > 0.9
