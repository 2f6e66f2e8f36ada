"""Kernels are prepared for their first launch by one thread at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from triton.compiler import CompiledKernel

from thothy_ai.kernels.triton.launchers import prepare_one_at_a_time

THREADS = 4


def test_threads_prepare_kernels_in_turn_and_each_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CompiledKernel, "run", CompiledKernel.run)  # put back afterwards
    others, prepared = threading.Event(), list[CompiledKernel]()
    inside = threading.Lock()

    def prepare(kernel: CompiledKernel) -> None:
        """As Triton's: nothing for a kernel with a module; the launcher first, then the module, the function last."""
        if kernel.module is not None:
            return
        assert inside.acquire(blocking=False), "two at a time"
        kernel._run = f"launcher {len(prepared)}"
        prepared.append(kernel)
        others.wait(0.01)  # the others ask meanwhile
        kernel.module = "module"
        others.wait(0.01)
        kernel.function = f"code {len(prepared)}"
        inside.release()

    def launch(kernel: CompiledKernel) -> tuple[object, object]:
        together.wait()
        kernel.launch_metadata((1, 1, 1), 0)  # prepares, too, where there may be hooks
        return kernel.run, kernel.function

    monkeypatch.setattr(CompiledKernel, "_init_handles", prepare)
    prepare_one_at_a_time()
    kernels = [CompiledKernel.__new__(CompiledKernel) for _ in range(THREADS // 2)]
    for kernel in kernels:
        kernel.module = kernel.function = kernel._run = kernel.src = None
        kernel.name = "kernel"
    together = threading.Barrier(THREADS)
    with ThreadPoolExecutor(THREADS) as pool:
        launched = list(pool.map(launch, kernels * 2))
    assert len(prepared) == len(kernels)
    assert {run for run, _ in launched} == {"launcher 0", "launcher 1"}
    assert {code for _, code in launched} == {"code 1", "code 2"}
