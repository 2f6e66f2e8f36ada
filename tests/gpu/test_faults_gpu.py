"""A fault on the device ends the engine's process, with the members of the step in the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tiny_models import tiny_model

pytestmark = pytest.mark.gpu

# A kernel's assertion: an index that lies beyond a tensor once the host has moved it, in a graph too.
SCRIPT = """
import os
import sys
from pathlib import Path
import torch
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.api.core import CoreRequest, FinishedEvent
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.models.model import Model
from tests.support.loading import load_model
from thothy_ai.engine.api.options import EngineOptions

folder, graphs, device = Path(sys.argv[1]), sys.argv[2] == "True", torch.device(sys.argv[3])
table, beyond = torch.zeros(256, device=device), torch.zeros(1, dtype=torch.int64, device=device)
plain, launch = Model.forward, Runner.forward

def forward(self, tokens, *rest):
    table[tokens.ids + beyond]
    return plain(self, tokens, *rest)

def fourth(self, step):
    replays.append(self.replays)
    if len(replays) == 4:
        beyond.fill_(1000)
    return launch(self, step)

replays = []
Model.forward, Runner.forward = forward, fourth
loaded = load_model(folder, device=device, dtype=torch.bfloat16)
ended = []
core = build_core(loaded, EngineOptions(url="", kv_tokens=4096, max_rows=4, graphs=graphs), ended.extend)
for name in ("one", "two"):
    core.submit(CoreRequest(name, (1, 2, 3), SamplingParams(max_tokens=50, ignore_eos=True)))
core.start()
assert core.join(60), "the core goes on"
print(sorted(core.failure.members), type(core.failure.__cause__ or core.failure).__name__)
print(sorted(e.id for e in ended if isinstance(e, FinishedEvent) and e.error is not None))
print(replays[3] - replays[0], flush=True)
os._exit(0)  # as the engine's process does: torch aborts when it frees what a broken device held
"""


@pytest.mark.parametrize("graphs", [False, True])
def test_a_kernel_s_assertion_names_the_step_s_members(tmp_path: Path, *, graphs: bool) -> None:
    folder = tiny_model("llama", tmp_path)
    command = [sys.executable, "-c", SCRIPT, str(folder), str(graphs), "cuda:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, f"exit code {done.returncode}: {done.stderr[-3000:]}"
    assert lines[0].startswith("['one', 'two']")
    assert lines[1] == "['one', 'two']"
    assert int(lines[2]) == (3 if graphs else 0), "steps before the fault that were replayed"
