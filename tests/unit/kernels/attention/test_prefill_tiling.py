"""Tilings of prefill attention over latents for GPUs that are not here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support import compiled_prefill
from tests.support.interpreter import compiling_environment
from thothy_ai.kernels.paged import AttentionShape
from thothy_ai.kernels.triton.attention.prefill_attention import Tiling
from thothy_ai.kernels.triton.sms import SMs

KIB = 1024
GPUS = {
    80: SMs(108, 164 * KIB, 163 * KIB),  # A100
    86: SMs(72, 100 * KIB, 99 * KIB),  # A10
    90: SMs(132, 228 * KIB, 227 * KIB),  # H200
}


def test_compiled_kernels_over_latents_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latent, rest = compiled_prefill.LATENT, compiled_prefill.REST
    shape = AttentionShape(
        64, compiled_prefill.HEADS, 1, latent + rest, compiled_prefill.PAGE, 4096, torch.bfloat16, torch.bfloat16,
        torch.device("cuda"), latent=latent,
    )  # fmt: skip
    arguments = []
    for architecture, sms in GPUS.items():
        monkeypatch.setattr(SMs, "of", lambda _, sms=sms: sms)
        tiling = Tiling.suited(shape)
        arguments.append((architecture, tiling.rows, tiling.keys, tiling.warps, tiling.stages))
    compiled = subprocess.run(  # one process for all: it imports torch
        [sys.executable, compiled_prefill.__file__, *map(json.dumps, arguments)],
        env=compiling_environment() | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    needed = dict(zip(GPUS, map(int, compiled.stdout.split()), strict=True))
    assert {each: bytes_ for each, bytes_ in needed.items() if not 0 < bytes_ <= GPUS[each].shared_of_program} == {}
