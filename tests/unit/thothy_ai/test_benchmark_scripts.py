"""Every benchmark that is run by hand answers --help before it measures anything; bad input is one line, and code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
SCRIPTS = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()]
ON_A_GPU = ["gemm_rows", "kernels.decode_sms", "kernels.mixed_step"]


@pytest.mark.parametrize("name", sorted({*SCRIPTS, *ON_A_GPU}))
def test_help(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
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
        ("gemm_rows --nothing", "unrecognized arguments: --nothing"),
        ("kernels.decode_sms --nothing", "unrecognized arguments: --nothing"),
        ("kernels.mixed_step --nothing", "unrecognized arguments: --nothing"),
        ("masks --tokenizer /nowhere", "/nowhere: no such file"),
        ("tekken /nowhere /tmp/none", "/nowhere cannot be converted"),
        ("startup --shape nothing", "invalid choice: 'nothing'"),
        ("startup --shape tiny --tokenizer /nowhere", "/nowhere: not a folder with a tokenizer"),
        ("frontend --shape nothing", "invalid choice: 'nothing'"),
        ("frontend --jobs 0", "argument --jobs: 0 must be greater than 0"),
        ("frontend --model /nowhere", "/nowhere: no such file or folder"),
        ("frontend --outputs 9 3", "argument --outputs: 9 is more than 3"),
        ("simulate --nothing", "unrecognized arguments: --nothing"),
    ],
)
def test_bad_input_is_one_line(typed: str, says: str) -> None:
    name, *arguments = typed.split()
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"python -m benchmarks.{name}: ")
    assert says in line
    assert done.stdout == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_without_a_gpu_they_say_so(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"python -m benchmarks.{name}: this needs a GPU (see --help)\n"
