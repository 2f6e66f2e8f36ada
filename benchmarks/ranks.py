"""One model on several GPUs, beside one GPU: the same tokens, and the time of a decode step.

    python -m benchmarks.ranks                      on two GPUs of one kind
    python -m benchmarks.ranks --device cpu         tries it on a CPU, with a tiny shape

Each case runs in a process of its own. Weights are random, the same on any number of GPUs. Tokens are compared in
float32, where sums in another order hardly ever change one; in bfloat16, how many tokens of an output are the same
before the first other one is printed beside them. A step's time is the difference of two drains over that of their
lengths. The 70B shape in fp8 does not fit one GPU of 80 GB: there, one GPU is given the time in which it would read
all weights and keys and values once, at the rate at which it reads memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from benchmarks.command_line import CommandLine, positive
from benchmarks.results import record
from thothy_ai.bench.drain import BenchCore
from thothy_ai.bench.shapes import SHAPES, write_config
from thothy_ai.engine.api import SamplingParams
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.distributed.leader import Group
from thothy_ai.engine.process.resident import load, load_together
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.weights.random import MARKER

LLAMA_70B = {
    **SHAPES["llama-8b"],
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"},
}
TINY = {**SHAPES["llama-8b"], "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
TINY |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500}
COMPARED = 16  # outputs
CONTEXT = 512  # tokens of a prompt
SHORT, LONG = 32, 160  # tokens of outputs
MUST_DECODE, MUST_70B = 1.5, 1.6
CASE_SECONDS = 300.0  # a case that takes longer hangs


@dataclass(frozen=True)
class Case:
    """A shape on a number of devices; `rows`: for how many a step is timed, or () to compare tokens."""

    shape: str
    dtype: str
    devices: int
    rows: tuple[int, ...] = ()


def main() -> None:
    line = CommandLine("ranks", __doc__)
    line.add_argument("--device", default="cuda")
    line.add_argument("--devices", type=positive(int), default=2)
    line.add_argument("--shape", action="append", help="only these: qwen3-0.6b, llama-8b, llama-70b, tiny")
    line.add_argument("--case", help="a case, as JSON: what the processes of this one run")
    arguments = line.parse_args()
    if arguments.case:
        run_here(Case(**json.loads(arguments.case)), arguments.device)
    on_gpu, many = arguments.device != "cpu", arguments.devices
    shapes = arguments.shape or (["qwen3-0.6b", "llama-8b", "llama-70b"] if on_gpu else ["tiny"])
    figures: list[tuple[str, str, str]] = []
    began = time.perf_counter()

    def note(name: str, value: str, must: str = "") -> None:
        figures.append((name, value, must))
        print(f"after {time.perf_counter() - began:.0f} s:", name, value, must, sep=" | ", flush=True)

    def run(case: Case) -> dict[str, Any]:
        command = [sys.executable, "-m", "benchmarks.ranks", "--device", arguments.device, "--case"]
        command.append(json.dumps(asdict(case)))
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=CASE_SECONDS)
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        print(case, {key: value for key, value in found.items() if key != "tokens"}, file=sys.stderr, flush=True)
        return found

    for shape in shapes:
        rows = (1, 256) if on_gpu else (1,)
        if shape != "llama-70b":
            for dtype in ("float32", "bfloat16") if on_gpu else ("float32",):
                one, two = (run(Case(shape, dtype, devices))["tokens"] for devices in (1, many))
                same = [agreed(*each) for each in zip(one, two, strict=True)]
                whole = sum(count == len(tokens) for count, tokens in zip(same, one, strict=True))
                must = f"{len(one)} of {len(one)}" if dtype == "float32" else ""
                note(f"{shape}, {dtype}: outputs that are the same", f"{whole} of {len(one)}", must)
                if dtype == "bfloat16":
                    mean = sum(same) / len(same)
                    note(f"{shape}, {dtype}: tokens before the first other one", f"{mean:.0f} of {LONG}")
        case = Case(shape, "bfloat16" if on_gpu else "float32", many, rows)
        two = run(case)
        one = model_of_one(two, rows) if shape == "llama-70b" and not two["fits_one"] else run(replace(case, devices=1))
        for count in map(str, rows):
            ratio = one["seconds"][count] / two["seconds"][count]
            must = f"{MUST_DECODE} x" if shape == "llama-8b" and count == "1" else ""
            must = f"{MUST_70B} x" if shape == "llama-70b" and count != "1" else must
            beside = (
                f"{1e3 * two['seconds'][count]:.2f} ms, {ratio:.2f} x {one['what']}'s {1e3 * one['seconds'][count]:.2f}"
            )
            note(f"{shape}: a decode step of {count} rows on {many}", beside, must)
        note(f"{shape}: tokens of KV on {many}", f"{two['kv_tokens']:,}")
    if on_gpu and not arguments.shape:
        record("One model on two GPUs", "Engine", "python -m benchmarks.ranks", figures)


def run_here(case: Case, device: str) -> NoReturn:
    """Measure the case, print it as JSON, and end this process and the other ranks'. To leave the group would wait for
    graphs that the core still has.
    """
    status = 1
    try:
        print(json.dumps(measured(case, device)), flush=True)
        status = 0
    except Exception:  # noqa: BLE001  whatever it is, the process must end
        traceback.print_exc()
    os._exit(status)


def measured(case: Case, device: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / case.shape
        folder.mkdir()
        write(case.shape, folder)
        options = EngineOptions(
            url="", model=folder, device=device, dtype=case.dtype, tensor_parallel=case.devices, max_context=1024,
            max_rows=max(case.rows, default=COMPARED), prefix_cache=False,
            kv_tokens=None if case.rows else COMPARED * 1024,
        )  # fmt: skip
        group = Group(options) if case.devices > 1 else None
        loaded = load(options, LocalText()) if group is None else load_together(options, LocalText(), group)
        core = BenchCore(loaded, options, group)
        info = core.core.info()
        found: dict[str, Any] = {"what": "one", "kv_tokens": info.num_blocks * info.block_size}
        found |= {"weights": loaded.model.num_bytes * case.devices, "device": info.device}
        if case.rows:
            found["seconds"] = {rows: step_seconds(core, rows, loaded.config.vocab_size) for rows in case.rows}
            found["bandwidth"] = bandwidth(device)
            found["kv_bytes"] = loaded.config.num_layers * 2 * loaded.config.num_kv_heads * loaded.config.head_dim * 2
            total = torch.cuda.get_device_properties(0).total_memory if device != "cpu" else 0
            found["fits_one"] = found["weights"] < 0.9 * total - 6e9
        else:
            drained = core.run(list(requests(COMPARED, LONG, loaded.config.vocab_size)))
            by_id = {request.id: tokens for request, tokens in drained.finished}
            found["tokens"] = [by_id[name] for name in sorted(by_id)]
    return found


def write(shape: str, folder: Path) -> None:
    """A folder of the shape, with random weights."""
    known = {"llama-70b": LLAMA_70B, "tiny": TINY}
    if shape in known:
        (folder / "config.json").write_text(json.dumps(known[shape]))
    else:
        write_config(shape, folder, eos_token_id=2)
    (folder / MARKER).touch()


def requests(rows: int, output: int, vocab: int) -> list[CoreRequest]:
    generator = torch.Generator().manual_seed(11)
    prompts = torch.randint(3, vocab, (rows, CONTEXT), generator=generator).tolist()
    sampling = SamplingParams(max_tokens=output, ignore_eos=True)
    return [
        CoreRequest(f"{time.monotonic_ns()}-{row:04}", tuple(prompt), sampling) for row, prompt in enumerate(prompts)
    ]


def step_seconds(core: BenchCore, rows: int, vocab: int) -> float:
    """Of a decode step of so many rows: the better of two."""
    core.run(requests(rows, SHORT, vocab))
    times = []
    for _ in range(2):
        short, long = (core.run(requests(rows, output, vocab)).seconds for output in (SHORT, LONG))
        times.append((long - short) / (LONG - SHORT))
    return min(times)


def bandwidth(device: str) -> float:
    """Bytes that the device reads per second."""
    if device == "cpu":
        return 1e10
    numbers = torch.ones(1 << 30, dtype=torch.float32, device=device)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    numbers.sum()
    begin.record()
    for _ in range(10):
        numbers.sum()
    end.record()
    end.synchronize()
    return 10 * numbers.nbytes / (begin.elapsed_time(end) * 1e-3)


def model_of_one(two: dict[str, Any], rows: tuple[int, ...]) -> dict[str, Any]:
    """The least time of one device that had the memory: it reads all weights, and keys and values, once."""
    context = CONTEXT + (SHORT + LONG) / 2
    seconds = {str(count): (two["weights"] + count * context * two["kv_bytes"]) / two["bandwidth"] for count in rows}
    return {"what": "the byte model", "seconds": seconds}


def agreed(one: list[int], two: list[int]) -> int:
    """How many tokens are the same before the first other one."""
    return next((place for place, pair in enumerate(zip(one, two, strict=True)) if pair[0] != pair[1]), len(one))


if __name__ == "__main__":
    main()
