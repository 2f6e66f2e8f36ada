"""Tunings of decode attention for GPUs that are not here."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support import compiled_decode
from tests.support.interpreter import compiling_environment
from thothy_ai.kernels.fp8 import FP8
from thothy_ai.kernels.paged import AttentionShape
from thothy_ai.kernels.triton.attention.decode_tuning import DecodeTuning
from thothy_ai.kernels.triton.sms import SMs

KIB = 1024
GPUS = {
    80: SMs(108, 164 * KIB, 163 * KIB),  # A100
    86: SMs(72, 100 * KIB, 99 * KIB),  # A10
    89: SMs(128, 100 * KIB, 99 * KIB),  # RTX 4090
    90: SMs(132, 228 * KIB, 227 * KIB),  # H200
}
SMALL = SMs(40, 64 * KIB, 63 * KIB)


def shape_of(
    dim: int, dtype: torch.dtype, heads: int = 32, kv_heads: int = 8, kv_dtype: torch.dtype | None = None
) -> AttentionShape:
    return AttentionShape(64, heads, kv_heads, dim, 32, 4096, dtype, kv_dtype or dtype, torch.device("cuda"))


@pytest.mark.parametrize(
    ("dim", "dtype", "wanted"),
    [
        (128, torch.bfloat16, DecodeTuning(64, 1, 4, 528, 8, 128)),
        (64, torch.float32, DecodeTuning(64, 1, 4, 528, 8, 128)),
        (80, torch.float32, DecodeTuning(32, 2, 4, 264, 8)),
        (256, torch.float16, DecodeTuning(32, 2, 4, 264, 8)),
        (256, torch.float32, DecodeTuning(16, 2, 4, 264, 8)),
    ],
)
def test_an_h200_has_the_tuning_that_it_ran_fastest(dim: int, dtype: torch.dtype, wanted: DecodeTuning) -> None:
    assert DecodeTuning.on(GPUS[90], shape_of(dim, dtype)) == wanted


@pytest.mark.parametrize(
    ("dim", "dtype", "wanted"),
    [
        (128, torch.bfloat16, DecodeTuning(64, 2, 2, 528, 8)),
        (64, torch.float16, DecodeTuning(64, 2, 2, 528, 8)),
        (256, torch.bfloat16, DecodeTuning(32, 2, 4, 264, 8)),
        (64, torch.float32, DecodeTuning(32, 2, 4, 264, 8)),
    ],
)
def test_and_over_an_fp8_cache(dim: int, dtype: torch.dtype, wanted: DecodeTuning) -> None:
    assert DecodeTuning.on(GPUS[90], shape_of(dim, dtype, kv_dtype=FP8)) == wanted


@pytest.mark.parametrize("sms", [*GPUS.values(), SMALL], ids=lambda each: f"{each.shared // KIB} KiB")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("dim", [64, 80, 96, 128, 256])
@pytest.mark.parametrize("kv_dtype", [None, FP8], ids=["cache", "fp8-cache"])
def test_programs_fit_their_processor_at_once(
    dim: int, dtype: torch.dtype, kv_dtype: torch.dtype | None, sms: SMs
) -> None:
    shape = shape_of(dim, dtype, kv_dtype=kv_dtype)
    tuning = DecodeTuning.on(sms, shape)
    assert tuning.tile >= 16
    assert tuning.programs % sms.count == 0
    if (dim, dtype, sms) != (256, torch.float32, SMALL):  # queries alone fill half of it
        assert tuning.shared_bytes(shape) <= sms.shared_of_program
        assert tuning.programs // sms.count * (tuning.shared_bytes(shape) + KIB) <= sms.shared


def test_less_is_loaded_ahead_before_tiles_are_cut() -> None:
    shape = shape_of(256, torch.bfloat16)
    tuning = DecodeTuning(tile=64, ahead=2, warps=4, programs=8, group_rows=4)
    enough = tuning.shared_bytes(shape)
    assert tuning.within(enough, shape) == tuning
    assert tuning.within(enough - 1, shape) == replace(tuning, ahead=1)
    assert tuning.within(enough // 2, shape) == replace(tuning, ahead=1, tile=32)
    assert tuning.within(0, shape) == replace(tuning, ahead=1, tile=16)


def test_compiled_kernels_need_no_more_than_was_said(tmp_path: Path) -> None:
    heads, kv_heads = 4 * compiled_decode.KV_HEADS, compiled_decode.KV_HEADS
    arguments, said = [], {}
    for architecture, dim, dtype, fp8, rest in (
        (80, 80, "float16", False, None),
        (86, 256, "bfloat16", False, None),
        (89, 128, "bfloat16", True, None),
        (90, 256, "float16", True, None),
        (90, 64, "float32", True, None),
        (90, 512, "bfloat16", False, 64),
    ):
        shape = shape_of(dim + (rest or 0), getattr(torch, dtype), heads, kv_heads, FP8 if fp8 else None)
        shape = replace(shape, latent=dim if rest else 0)
        tuning = DecodeTuning.on(GPUS[architecture], shape)
        assert tuning.group_rows == compiled_decode.GROUP_ROWS
        cut = tuning.tile, tuning.ahead, tuning.warps, tuning.registers
        arguments.append((architecture, dim, dtype, fp8, *cut, rest))
        said[architecture, dim] = tuning.shared_bytes(shape)
    compiled = subprocess.run(  # one process for all: it imports torch
        [sys.executable, compiled_decode.__file__, *map(json.dumps, arguments)],
        env=compiling_environment() | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    needed = dict(zip(said, map(int, compiled.stdout.split()), strict=True))
    assert {kernel: bytes_ for kernel, bytes_ in needed.items() if not said[kernel] // 2 < bytes_ <= said[kernel]} == {}
