"""A fault on the device ends the engine's process, with the members of the step in the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tiny_models import tiny_model

pytestmark = pytest.mark.gpu
SUPPORT = Path(__file__).parents[1] / "support"

SCENE = """
import os
import sys
from pathlib import Path
import torch
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.core_api import CoreRequest, FinishedEvent
from thothy_ai.engine.weights.loader import load_model
from thothy_ai.engine.options import EngineOptions

loaded = load_model(Path(sys.argv[1]), device=torch.device("cuda", 0), dtype=torch.bfloat16)
ended = []
core = build_core(loaded, EngineOptions(url="", kv_tokens=4096, max_rows=4, graphs=False), ended.extend)
forward = loaded.model.__class__.forward
steps = iter(range(100))

def faulty(self, tokens, *rest):
    if next(steps) == 3:
        torch.zeros(4, device="cuda")[tokens.ids + 1000]  # an assertion in a kernel
    return forward(self, tokens, *rest)

loaded.model.__class__.forward = faulty
for name in ("one", "two"):
    core.submit(CoreRequest(name, (1, 2, 3), SamplingParams(max_tokens=50, ignore_eos=True)))
core.start()
assert core.join(60), "the core goes on"
print(sorted(core.failure.members), type(core.failure.__cause__ or core.failure).__name__)
print(sorted(e.id for e in ended if isinstance(e, FinishedEvent) and e.error is not None), flush=True)
os._exit(0)  # as the engine's process does: torch aborts when it frees what a broken device held
"""


def test_a_kernel_s_assertion_names_the_step_s_members(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", SCENE, str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2, f"exit code {done.returncode}: {done.stderr[-3000:]}"
    assert lines[0].startswith("['one', 'two']")
    assert lines[1] == "['one', 'two']"
