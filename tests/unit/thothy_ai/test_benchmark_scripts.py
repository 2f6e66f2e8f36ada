"""Every benchmark that is run by hand answers --help before it measures anything; bad input is one line, and code 2."""

from __future__ import annotations

import runpy
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
SCRIPTS = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()]
ON_A_GPU = ["kernels.mixed_step"]


@dataclass(frozen=True)
class Script:
    """Runs a script as `python -m` does, in this process: each of its own would import torch again."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def run(self, name: str, *arguments: str) -> tuple[object, str, str]:
        """Exit code, stdout and stderr."""
        self.monkeypatch.setattr(sys, "argv", [name, *arguments])
        self.monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
        with pytest.raises(SystemExit) as ended:
            runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
        return ended.value.code, *self.capsys.readouterr()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    return Script(monkeypatch, capsys)


@pytest.mark.parametrize("name", sorted({*SCRIPTS, *ON_A_GPU} - {"host_steps"}))
def test_help(name: str, script: Script) -> None:
    code, out, _ = script.run(name, "--help")
    assert not code
    assert out.startswith("usage: ")


def test_help_of_the_one_that_patches_the_engine() -> None:
    command = [sys.executable, "-m", "benchmarks.host_steps", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("accuracy --model /nowhere", "/nowhere: no such file or folder"),
        ("accuracy --device nothing", "unknown device 'nothing'"),
        ("soak --shape nothing", "invalid choice: 'nothing'"),
        ("soak --minutes nan", "argument --minutes: nan must be greater than 0 and finite"),
        ("soak --memory-utilization 1.5", "1.5 must be greater than 0 and at most 1"),
        ("compare drains /nowhere", "/nowhere is not a checkout of this repository"),
        ("compare queue . --rounds 0", "argument --rounds: 0 must be greater than 0"),
        ("compare nothing .", "invalid choice: 'nothing'"),
        ("kernels.mixed_step --nothing", "unrecognized arguments: --nothing"),
        ("tekken /nowhere /tmp/none", "/nowhere cannot be converted"),
        ("startup --shape nothing", "invalid choice: 'nothing'"),
        ("startup --shape tiny --tokenizer /nowhere", "/nowhere: not a folder with a tokenizer"),
        ("frontend --shape nothing", "invalid choice: 'nothing'"),
        ("frontend --jobs 0", "argument --jobs: 0 must be greater than 0"),
        ("frontend --model /nowhere", "/nowhere: no such file or folder"),
        ("frontend --outputs 9 3", "argument --outputs: 9 is more than 3"),
        ("kv_budgets --jobs 0", "argument --jobs: 0 must be greater than 0"),
        ("kv_budgets --device nothing", "unknown device 'nothing'"),
        ("kv_budget_losses --lengths 100", "argument --lengths: 100 is less than 500"),
        ("kv_budget_losses --device nothing", "unknown device 'nothing'"),
        ("extended /tmp/none --model /nowhere", "/nowhere: "),
        ("simulate --nothing", "unrecognized arguments: --nothing"),
    ],
)
def test_bad_input_is_one_line(typed: str, says: str, script: Script) -> None:
    name, *arguments = typed.split()
    code, out, err = script.run(name, *arguments)
    assert (code, out) == (2, "")
    [line] = err.splitlines()
    assert line.startswith(f"python -m benchmarks.{name}: ")
    assert says in line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_without_a_gpu_they_say_so(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"python -m benchmarks.{name}: this needs a GPU (see --help)\n"
