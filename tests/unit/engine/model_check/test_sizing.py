"""Memory is planned by the configuration alone: the plan's weights are those that a loaded model holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.loading import load_model
from tests.support.tiny_models import tiny_model
from thothy_ai.bench.models import bench_model
from thothy_ai.bench.shapes import SHAPES, parameters, write_config
from thothy_ai.engine.api.errors import InvalidRequestError, OutOfMemoryError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.execution.host_memory import host_memory
from thothy_ai.engine.model_check.sizing import (
    MemoryPlan,
    engine_sizes,
    kv_left,
    layer_groups,
    max_blocks,
    num_blocks,
    plan_memory,
    weight_bytes,
    workspace_bytes,
)
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import num_parameters
from thothy_ai.kernels.paged import AttentionShape
from thothy_ai.kernels.triton.attention.decode_merge import Partials


@pytest.mark.parametrize(("dtype", "weights"), [("float32", "auto"), ("bfloat16", "auto"), ("bfloat16", "fp8")])
def test_planned_weights_are_those_that_a_model_holds(dtype: str, weights: str) -> None:
    loaded = bench_model("tiny", EngineOptions(url="", device="cpu", dtype=dtype, weights=weights))
    planned = weight_bytes(loaded.config, weights, loaded.model.device, loaded.model.dtype)
    assert planned == loaded.model.num_bytes
    if weights == "auto":
        rotary = planned - parameters("tiny") * loaded.model.dtype.itemsize
        assert 0 <= rotary < planned / 100


def test_random_weights_of_a_quantized_shape_are_planned_too(tmp_path: Path) -> None:
    quantization = {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True}
    folder = write_config("tiny", tmp_path, quantization_config=quantization)
    (folder / "random_weights").touch()
    loaded = load_model(folder, device=torch.device("cpu"), dtype=torch.bfloat16)
    assert weight_bytes(loaded.config, "auto", loaded.model.device, torch.bfloat16) == loaded.model.num_bytes
    plan = plan_memory(loaded.config, EngineOptions(url=""), loaded.model.device, torch.bfloat16)
    assert (plan.weights, plan.weight_type) == (loaded.model.num_bytes, "awq")


def files(root: Path, **content: str) -> None:
    for name, text in content.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("cgroup", "folder", "limit", "usage", "inactive"),
    [
        ("0::/job\n", "sys/fs/cgroup/job", "memory.max", "memory.current", "inactive_file"),
        ("4:memory:/job\n", "sys/fs/cgroup/memory/job", "memory.limit_in_bytes", "memory.usage_in_bytes",
         "total_inactive_file"),
    ],
)  # fmt: skip
def test_a_cgroup_s_limit_counts(
    cgroup: str, folder: str, limit: str, usage: str, inactive: str, tmp_path: Path
) -> None:
    files(tmp_path, proc__meminfo="MemTotal: 8000 kB\nMemAvailable: 6000 kB\n", proc__self__cgroup=cgroup)
    assert host_memory(tmp_path) == (6000 * 1024, 8000 * 1024)
    group = tmp_path / folder
    group.mkdir(parents=True)
    (group / limit).write_text("3000000\n")
    (group / usage).write_text("2000000\n")
    (group / "memory.stat").write_text(f"anon 5\n{inactive} 500000\n")
    assert host_memory(tmp_path) == (1_500_000, 3_000_000)


@pytest.mark.parametrize("shape", SHAPES)
def test_parameters_of_a_shape_are_those_of_its_model(shape: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES[shape]))
    assert parameters(shape) == num_parameters(model_config(tmp_path))


def test_a_step_s_experts_need_room_for_what_each_of_them_makes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES["qwen3-30b-a3b"]))
    sparse = model_config(tmp_path)
    dense = replace(sparse, experts=None, mlp_sizes=(8 * 768,) * sparse.num_layers)
    device = torch.device("cuda")
    sizes = engine_sizes(sparse, EngineOptions(url=""), device)
    more = workspace_bytes(sparse, sizes, torch.bfloat16, device) - workspace_bytes(
        dense, sizes, torch.bfloat16, device
    )
    assert more == 2 * sizes.token_budget * 8 * 2048 * 2


def test_each_kind_of_heads_has_buffers(tmp_path: Path) -> None:
    model, device = model_config(tiny_model("gemma4_text", tmp_path)), torch.device("cuda")
    sizes = engine_sizes(model, EngineOptions(url=""), device)
    alike = replace(model, kv_heads=(max(model.kv_heads, key=lambda heads: heads.size),) * model.num_layers)
    one = replace(alike, num_kv_heads=alike.kv_heads[0].number, head_dim=alike.kv_heads[0].size)
    more = workspace_bytes(model, sizes, torch.bfloat16, device) - workspace_bytes(one, sizes, torch.bfloat16, device)
    assert more == 1 << 29


def test_partial_results_over_latents_have_room(tmp_path: Path) -> None:
    """Of as many heads as DeepSeek-V3 has, on an H200: more than what every kind of heads has."""
    heads, device = 128, torch.device("cuda")
    sizes = {"num_attention_heads": heads, "num_key_value_heads": heads}
    model = model_config(write_config("deepseek-v2-lite", tmp_path, **sizes))
    engine = engine_sizes(model, EngineOptions(url="", graphs=False), device)
    one = replace(model, num_heads=1)
    room = workspace_bytes(model, engine, torch.bfloat16, device) - workspace_bytes(one, engine, torch.bfloat16, device)
    shape = AttentionShape(
        engine.max_rows, heads, 4, 576, 32, 4096, torch.bfloat16, torch.bfloat16, torch.device("meta"), latent=512
    )
    partials = Partials.allocate(shape, num_slots=132 // 4, group_rows=1)
    assert 1 << 29 < partials.outputs.nbytes + partials.lse.nbytes < room + (1 << 29)


@pytest.mark.parametrize(
    ("family", "overrides", "inner"),
    [
        ("granitemoehybrid", {"num_local_experts": 0, "num_experts_per_tok": 0}, 40),
        ("granitemoehybrid", {}, 2 * 32 + 40),
        ("lfm2", {"intermediate_size": 100}, 80),
        ("lfm2", {"block_auto_adjust_ff_dim": False, "intermediate_size": 72}, 72),
    ],
)
def test_mlps_are_planned_as_wide_as_they_are(
    family: str, overrides: dict[str, int], inner: int, tmp_path: Path
) -> None:
    config = model_config(tiny_model(family, tmp_path, **overrides))
    assert (config.active_inner, config.widest_inner) == (3 * inner, inner)


@pytest.mark.parametrize(
    ("chosen", "named"), [({"kv_dtype": "fp8"}, "--kv-dtype auto"), ({"attention": "flex"}, "--attention auto")]
)
def test_what_latents_cannot_have_is_refused(chosen: dict[str, Any], named: str, tmp_path: Path) -> None:
    model = model_config(tiny_model("deepseek_v3", tmp_path))
    with pytest.raises(InvalidRequestError, match=f"latents.*{named}"):
        plan_memory(model, EngineOptions(url="", **chosen), torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(
    ("family", "chosen", "why"),
    [
        ("llama", {}, ""),
        ("gemma3_text", {}, "windows"),
        ("gemma3_text", {"max_context": 4}, ""),  # windows are longer
        ("llama4_text", {}, "windows"),
        ("qwen3_next", {}, "recurrent layers"),
        ("deepseek_v3", {}, "latents"),
        ("llama", {"attention": "flex"}, "FlexAttention"),
        ("llama", {"tensor_parallel": 2}, "several devices"),
    ],
)
def test_why_no_sequence_can_have_a_kv_budget(family: str, chosen: dict[str, Any], why: str, tmp_path: Path) -> None:
    model = model_config(tiny_model(family, tmp_path))
    found = engine_sizes(model, EngineOptions(url="", **chosen), torch.device("cpu")).keeps_all
    assert why in found
    assert bool(why) == bool(found)


@pytest.mark.parametrize(("block_size", "rows", "fit"), [(16, 8, 8), (16, 1024, 39), (1024, 1024, 19), (4096, 1024, 4)])
def test_budgeted_sequences_are_those_that_memory_and_rows_hold(
    block_size: int, rows: int, fit: int, tmp_path: Path
) -> None:
    model = model_config(tiny_model("llama", tmp_path))
    options = EngineOptions(url="", block_size=block_size, max_rows=rows)
    plan = plan_memory(model, options, torch.device("cpu"), torch.float32)
    per_token = kv_left(plan, model, options, torch.float32).bytes_per_token
    taken = plan.weights + plan.states + plan.workspace
    small = replace(plan, available=taken + round(25 * 4096 * per_token))
    left = kv_left(small, model, options, torch.float32)
    assert (left.budget, left.budgeted) == (max(2048, 4 * block_size), fit)


def test_this_machine_has_memory() -> None:
    available, total = host_memory()
    assert 0 < available <= total
    assert torch.cuda.is_available() or total > 1e8


@pytest.mark.parametrize(("shape", "rows", "budget"), [
    ("llama-8b", None, 1280), ("qwen3-0.6b", None, 8192), ("smollm2-135m", None, 8192), ("llama-8b", 2000, 2048),
    ("qwen3-30b-a3b", None, 1536), ("mixtral-8x7b", None, 1280),
])  # fmt: skip
def test_a_gpu_s_step_is_as_large_as_launching_it_takes_and_holds_every_row(
    shape: str, rows: int | None, budget: int, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES[shape]))
    config = model_config(tmp_path)
    sizes = engine_sizes(config, EngineOptions(url="", max_rows=rows), torch.device("cuda"))
    assert sizes.token_budget == budget
    assert engine_sizes(config, EngineOptions(url="", token_budget=7), torch.device("cuda")).token_budget == 7


@pytest.mark.parametrize(("max_context", "window"), [(None, 100), (101, 100), (100, None)])
def test_an_engine_has_the_window_that_its_contexts_outgrow(
    max_context: int | None, window: int | None, tmp_path: Path
) -> None:
    model = model_config(tiny_model("mistral", tmp_path, sliding_window=100))
    options = EngineOptions(url="", kv_tokens=64, token_budget=16, max_context=max_context)
    sizes = engine_sizes(model, options, torch.device("cpu"))
    assert sizes.windows == (window,)
    assert sizes.max_context == (max_context or 256)


def test_the_plan_says_how_much_fits_behind_windows(tmp_path: Path) -> None:
    sizes = {"max_position_embeddings": 8192, "sliding_window": 512, "num_hidden_layers": 4}
    config, gpu = model_config(tiny_model("gemma2", tmp_path, **sizes)), torch.device("cuda")
    options = EngineOptions(url="", max_context=4096)
    left = kv_left(plan_memory(config, options, gpu, torch.bfloat16, 4_000_000_000), config, options, torch.bfloat16)
    assert left.bytes_per_token == 4 * 2 * 2 * 16 * 2
    (short, tokens), (long, more) = left.by_length
    assert (short, long) == (2000, 4000)
    assert tokens / left.tokens == pytest.approx(2 * 63 / (63 + 17) * 2000 / 2016, rel=0.01)  # 17 blocks of a window
    assert more / left.tokens == pytest.approx(2 * 125 / (125 + 17), rel=0.01)
    wide = engine_sizes(config, replace(options, kv_tokens=320, max_context=512), gpu)
    assert (wide.windows, wide.num_blocks) == ((None,), 2)


def test_the_plan_says_how_much_fits_behind_chunks(tmp_path: Path) -> None:
    """Of Llama 4's layers, three in four see a chunk of 8,192 tokens."""
    sizes = {"num_hidden_layers": 8, "no_rope_layers": None, "moe_layers": [], "attention_chunk_size": 8192}
    context = {"max_position_embeddings": 1 << 20}
    config, gpu = model_config(tiny_model("llama4_text", tmp_path, **sizes, **context)), torch.device("cuda")
    options = EngineOptions(url="", max_context=32_000)
    left = kv_left(plan_memory(config, options, gpu, torch.bfloat16, 9_000_000_000), config, options, torch.bfloat16)
    assert engine_sizes(config, options, gpu).windows == (None, 8192, 8192, 8192)
    assert engine_sizes(config, options, gpu).chunked
    *_, (length, tokens) = left.by_length
    assert (length, tokens / left.tokens) == (16_000, pytest.approx(4 * 500 / (500 + 3 * 257), rel=0.01))  # in blocks
    assert engine_sizes(config, replace(options, max_context=8192), gpu).windows == (None,)


def test_adapters_count_in_the_plan(tmp_path: Path) -> None:
    """Those of an 8B model: 64 of the largest rank are more than a device of 40 GB has beside the weights."""
    (tmp_path / "config.json").write_text(json.dumps(SHAPES["llama-8b"]))
    config, gpu = model_config(tmp_path), torch.device("cuda")

    def planned(**changes: int) -> MemoryPlan:
        return plan_memory(config, EngineOptions(url="", **changes), gpu, torch.bfloat16, 40_000_000_000)

    without = planned()
    assert without.fits
    assert planned(adapter_slots=0) == without
    few, many = planned(adapter_slots=8), planned(adapter_slots=64, adapter_rank=256)
    numbers = 32 * (2 * 8192 + 2 * 5120 + 3 * (4096 + 14336))  # of rank 1: in and out of each layer, once
    assert few.workspace - without.workspace >= 8 * 2 * 16 * numbers
    assert many.workspace - without.workspace > 64 * 2 * 256 * numbers
    assert not many.fits


@pytest.mark.parametrize(("state_dtype", "rows", "state_mb"), [("bfloat16", 512, 33.0), ("float32", 256, 64.4)])
def test_states_count_in_the_plan_and_limit_the_rows(
    state_dtype: str, rows: int, state_mb: float, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(SHAPES["qwen3.5-35b-a3b"]))
    config, gpu = model_config(tmp_path), torch.device("cuda")
    options = EngineOptions(url="", state_dtype=state_dtype, weights="fp8")
    sizes = engine_sizes(config, options, gpu)
    assert (sizes.max_rows, sizes.kept_states, sizes.state_slots) == (rows, rows // 8, rows + 1 + rows // 8)
    plan = plan_memory(config, options, gpu, torch.bfloat16, 80_000_000_000)
    assert plan.states / plan.slots == pytest.approx(state_mb * 1e6, rel=0.01)
    assert plan.fits
    without = replace(plan, states=0)
    tokens, more = (kv_left(each, config, options, torch.bfloat16)[0] for each in (plan, without))
    assert more - tokens == pytest.approx(plan.states / (10 * 2 * 2 * 256 * 2), rel=0.01)  # ten layers have KV
    many = plan_memory(config, replace(options, max_rows=4096), gpu, torch.bfloat16, 80_000_000_000)
    with pytest.raises(OutOfMemoryError, match=r"needs \d+\.\d GB, of which .*\d+\.\d GB for 4609 states"):
        many.require("qwen")


@pytest.mark.parametrize("family", ["llama", "gemma4_text"])
def test_flex_attention_s_pool_is_as_large_as_its_kernel_counts(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which finds a token's keys by 32 bits, beside those of other layers in the same blocks."""
    gpu, memory = torch.device("cuda"), 1 << 40
    config = model_config(tiny_model(family, tmp_path, max_position_embeddings=8192))
    options = EngineOptions(url="", attention="flex", max_context=4096)
    sizes, rooms = engine_sizes(config, options, gpu), layer_groups(config, options).rooms().values()
    most = max_blocks(config, sizes, options, gpu)
    numbers = sizes.block_size * max(room.numbers for room in rooms)
    assert 0 < (1 << 31) - most * numbers <= numbers
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (memory, memory))
    assert num_blocks(64, 0, 0, most, sizes, options, gpu) == most
    tokens = (most - 1) // len(sizes.windows) * sizes.block_size
    plan = plan_memory(config, options, gpu, torch.bfloat16, memory)
    assert kv_left(plan, config, options, torch.bfloat16).tokens == tokens
    plan_memory(config, replace(options, kv_tokens=tokens), gpu, torch.bfloat16, memory)
    with pytest.raises(InvalidRequestError, match=rf"{tokens} tokens .* --kv-tokens is {tokens + 1}: use --kv-tokens"):
        plan_memory(config, replace(options, kv_tokens=tokens + 1), gpu, torch.bfloat16, memory)
    auto = replace(options, attention="auto", kv_tokens=tokens + 1)
    plan_memory(config, auto, gpu, torch.bfloat16, memory)
    assert max_blocks(config, sizes, auto, gpu) > most < max_blocks(config, sizes, options, torch.device("cpu"))
