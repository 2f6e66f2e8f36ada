"""Sizing and refusing: every way a core can't be built is one clear, typed error."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.loading import load_model
from tests.support.oracle import ROOMY
from tests.support.tiny_models import tiny_model
from thothy_ai.bench.shapes import SHAPES
from thothy_ai.engine.api.errors import InvalidRequestError, OutOfMemoryError
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype, resolve_kv_dtype
from thothy_ai.engine.models.kv_cache import KVCache
from thothy_ai.engine.process.build import build_core, step_cost
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.formats import weight_format
from thothy_ai.engine.weights.loader import LoadedModel

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder: Path = tiny_model("llama", tmp_path_factory.mktemp("llama"))
    return load_model(folder, device=CPU, dtype=torch.float32)


@pytest.mark.parametrize("name", ["mps", "meta", "nonsense", "cuda:99"])
def test_devices_that_are_not_there_or_not_supported(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        resolve_device(name)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "int8", "nonsense"])
def test_types_that_are_not_supported(name: str) -> None:
    with pytest.raises(InvalidRequestError, match=name):
        resolve_dtype(name, CPU)


def test_fp8_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "an older GPU")
    older = torch.device("cuda", 0)
    with pytest.raises(InvalidRequestError, match=r"older GPU .*8\.6"):
        resolve_kv_dtype("fp8", torch.bfloat16, older)
    with pytest.raises(InvalidRequestError, match=r"older GPU .*8\.6"):
        weight_format("fp8", older)
    assert resolve_kv_dtype("fp8", torch.bfloat16, CPU) is torch.float8_e4m3fn
    with pytest.raises(InvalidRequestError, match="int4"):
        weight_format("int4", CPU)
    with pytest.raises(InvalidRequestError, match="int4"):
        resolve_kv_dtype("int4", torch.bfloat16, CPU)


def test_auto_on_a_cpu() -> None:
    assert resolve_dtype("auto", CPU) is torch.float32


def test_a_pool_larger_than_memory_is_refused_with_the_numbers(loaded: LoadedModel) -> None:
    with pytest.raises(OutOfMemoryError, match=r"take \d+\.\d GB, cpu has \d+\.\d GB"):
        build_core(loaded, replace(ROOMY, kv_tokens=10**11), lambda _: None)


def test_a_device_that_runs_out_while_the_pool_is_made(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> KVCache:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(KVCache, "allocate", full)
    with pytest.raises(OutOfMemoryError, match=r"20\.00 GiB"):
        build_core(loaded, ROOMY, lambda _: None)


def test_a_token_is_charged_for_the_experts_that_it_goes_to(tmp_path: Path) -> None:
    """Less than for all of them, and more than for attention alone."""
    (tmp_path / "config.json").write_text(json.dumps(SHAPES["qwen3-30b-a3b"]))
    config = model_config(tmp_path)
    cost = step_cost(config, kv_bytes=1, on_gpu=True)
    heads = 2 * (32 + 4) * 128
    assert cost.token == pytest.approx(2 * 48 * 2048 * (heads + 3 * 8 * 768) / 7e14)
