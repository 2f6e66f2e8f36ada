"""The bandwidth of decode attention over the number of SMs that it runs on. Needs a GPU.

    python -m benchmarks.kernels.decode_sms

The other SMs are held by programs that take nearly all of an SM's shared memory and wait, so that none of attention's
fits beside them; its grid is what the SMs that are left hold at once.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle

import torch

from benchmarks.command_line import CommandLine
from benchmarks.kernels.bandwidth import copy_bandwidth
from benchmarks.kernels.decode_attention import LLAMA, LLAMA_FP8, Load, Problem, build_batch
from benchmarks.results import table
from thothy_ai.kernels.triton.attention.decode_attention import DecodeAttention
from thothy_ai.kernels.triton.attention.decode_tuning import DecodeTuning

SM_COUNTS = (132, 120, 104, 92, 80, 66, 53, 40, 26)
_HELD_BYTES = 224 << 10  # of shared memory
_WAIT = """extern "C" __global__ void wait(int* done) {
    long long begin = clock64();
    while (*(volatile int*)done == 0 && clock64() - begin < 2000000000LL) __nanosleep(500);
}"""


class HeldSMs:
    """Keeps SMs busy with nothing."""

    def __init__(self) -> None:
        self._wait = torch.cuda._compile_kernel(_WAIT, "wait")
        self._wait.set_shared_memory_config(_HELD_BYTES)
        self._done = torch.zeros(1, dtype=torch.int32, device="cuda")
        self._stream, self._releasing = torch.cuda.Stream(), torch.cuda.Stream()

    @contextmanager
    def but(self, count: int) -> Iterator[None]:
        """All of them except so many."""
        held = _all_sms() - count
        self._done.zero_()
        torch.cuda.synchronize()
        if held:
            self._wait((held, 1, 1), (32, 1, 1), [self._done], _HELD_BYTES, self._stream)
        try:
            yield
        finally:
            with torch.cuda.stream(self._releasing):
                self._done.fill_(1)
            torch.cuda.synchronize()


def _all_sms() -> int:
    count: int = torch.cuda.get_device_properties(0).multi_processor_count
    return count


def over_sms() -> list[tuple[str, ...]]:
    """GB/s of decode attention as the engine runs it, with as many programs as the SMs hold."""
    held = HeldSMs()
    return [
        (problem.name, *(f"{_bandwidth(problem, count, held):.0f}" for count in SM_COUNTS))
        for problem in (LLAMA, LLAMA_FP8)
    ]


def _bandwidth(problem: Problem, count: int, held: HeldSMs, layers: int = 4, rounds: int = 7) -> float:
    suited = DecodeTuning.suited(problem.shape())
    each = suited.programs // _all_sms()
    attention = DecodeAttention(problem.shape(), replace(suited, programs=each * count))
    draw = torch.Generator().manual_seed(0)
    load = Load("300 x 500-2100", tuple(torch.randint(500, 2100, (300,), generator=draw).tolist()))
    batch, blocks = build_batch(load, problem.block_size)
    q = torch.randn(batch.num_decode, problem.heads, problem.dim, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(q)
    caches = problem.caches(blocks)
    attention.plan(batch)
    times = []
    for attempt in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        with held.but(count if attempt else _all_sms()):
            begin.record()
            for _, cache in zip(range(layers), cycle(caches), strict=False):
                attention(q, cache, batch, out)
            end.record()
            end.synchronize()
        times.append(begin.elapsed_time(end))
    return layers * sum(load.own) * problem.token_bytes / statistics.median(times[1:]) / 1e6


def main() -> None:
    CommandLine("kernels.decode_sms", __doc__).parse_on_a_gpu()
    print(f"{torch.cuda.get_device_name()}, copies at {copy_bandwidth():.0f} GB/s\n")
    print(table(("decode attention, GB/s on SMs", *map(str, SM_COUNTS)), over_sms()))


if __name__ == "__main__":
    main()
