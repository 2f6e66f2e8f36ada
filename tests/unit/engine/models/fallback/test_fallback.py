"""What the fallback reads of a model, what it refuses and when, and what it needs of memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXMLP, GPTNeoXModel

from tests.support.fallback_models import fallback_config, fallback_model
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import reference_model
from thothy_ai.engine.api.errors import InvalidRequestError, ModelLoadError, OutOfMemoryError, UnsupportedModelError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.model_check.sizing import plan_memory, weight_bytes
from thothy_ai.engine.models.fallback import CHECKED, REFUSED, ThroughTransformers
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.inventory import num_parameters
from thothy_ai.engine.weights.random import MARKER
from thothy_ai.kernels.fp8 import FP8

CPU, GPU = torch.device("cpu"), torch.device("cuda")
MLPS = {"arcee": 80, "opt": 80, "dots1": 64}  # of two experts, of 32 each
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
        "original_max_position_embeddings": 64}  # fmt: skip


def described(kind: str, folder: Path, **overrides: Any) -> Path:
    """A folder with a configuration alone."""
    fallback_config(kind, **overrides).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", REFUSED)
def test_refusals_say_why_before_weights_are_looked_for(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError) as refused:
        model_config(described(kind, tmp_path))
    assert str(refused.value) == f"{tmp_path}: architecture {kind!r}: {REFUSED[kind]}"


def test_what_nobody_knows_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "abacus"}))
    with pytest.raises(UnsupportedModelError, match=r"'abacus' is not implemented \(known: llama, .*mistral3"):
        model_config(tmp_path)


@pytest.mark.parametrize(
    ("kind", "overrides", "reason"),
    [
        ("gpt_neox", {"quantization_config": {"quant_method": "fp8"}}, "not quantized"),
        ("bloom", {"seq_length": None, "max_position_embeddings": None}, "max_position_embeddings is None"),
        ("opt", {"word_embed_proj_dim": 24}, "its head takes 24 numbers of each token, and its layers have 48"),
        (
            "deepseek_v4",
            {"layer_types": ["compressed_sparse_attention"] * 3},
            "type 'compressed_sparse_attention', which is not",
        ),
        (
            "olmo_hybrid",
            {"layer_types": ["full_attention", "linear_attention", "full_attention"]},
            "recurrent state is",
        ),
        ("mpt", {"attn_config": {"attn_type": "multiquery_attention"}}, "attn_type is 'multiquery_attention': transf"),
        ("mpt", {"attn_config": {"alibi": False}}, "attn_config.alibi is False: transformers computes True only"),
        ("mpt", {"attn_config": {"alibi_bias_max": 2}}, "attn_config.alibi_bias_max is 2: transformers computes 8"),
        ("mpt", {"attn_config": {"prefix_lm": True}}, "attn_config.prefix_lm is True: transformers computes False"),
        ("mpt", {"attn_config": {"qk_ln": True}}, "attn_config.qk_ln is True: transformers computes False only"),
        ("mpt", {"norm_type": "rmsnorm"}, "norm_type is 'rmsnorm': transformers computes 'low_precision_layernorm'"),
        ("mpt", {"logit_scale": "inv_sqrt_d_model"}, "logit_scale is 'inv_sqrt_d_model': transformers computes None"),
        ("lfm2_moe", {"layer_types": ["conv", "full_attention", "conv"]}, "layer 0 is of type 'conv', which is not"),
    ],
)
def test_configurations_that_are_refused(kind: str, overrides: dict[str, Any], reason: str, tmp_path: Path) -> None:
    folder = described(kind, tmp_path)
    config = json.loads((folder / "config.json").read_text()) | overrides
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelLoadError, match=reason):
        model_config(folder)


def test_the_shape_is_that_of_the_attention_modules(tmp_path: Path) -> None:
    config = model_config(described("minicpm3", tmp_path))
    assert (config.num_heads, config.num_kv_heads, config.head_dim, config.num_layers) == (6, 6, 24, 3)
    architecture = config.architecture
    assert isinstance(architecture, ThroughTransformers)
    assert {(layer.key_dim, layer.value_dim) for layer in architecture.layers} == {(24, 12)}


def test_windows_are_those_of_the_masks(tmp_path: Path) -> None:
    config = model_config(described("exaone4", tmp_path))
    assert config.architecture.windows == (12, None, 12)
    assert config.layer_groups.windows == (None, 12, 12)
    everywhere = model_config(described("starcoder2", tmp_path / "all"))
    assert everywhere.architecture.windows == (40, 40, 40)
    assert everywhere.layer_groups.windows == (40,)


def test_rotary_embedding_that_depends_on_the_length_ends_at_the_original_context(tmp_path: Path) -> None:
    config = model_config(described("arcee", tmp_path, rope_parameters=LONG))
    assert config.max_context == 64


@pytest.mark.parametrize("rope", [LONG, {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}])
def test_rotary_embedding_that_depends_on_the_length(rope: dict[str, Any], tmp_path: Path) -> None:
    folder = fallback_model("arcee", tmp_path, rope_parameters=rope, max_position_embeddings=64)
    tokens = torch.randint(3, 131, (60,), generator=torch.Generator().manual_seed(5)).tolist()
    with torch.no_grad():
        expected = reference_model(folder)(torch.tensor([tokens])).logits[0]
    run = PagedRun(load_model(folder, device=CPU, dtype=torch.float32).model, sequences=1, longest=64)
    torch.testing.assert_close(run.step({0: tokens})[0], expected, atol=1e-4, rtol=1e-4)


def test_memory_is_known_before_weights_are_read(tmp_path: Path) -> None:
    folder = fallback_model("olmoe", tmp_path)
    config = model_config(folder)
    loaded = load_model(folder, device=CPU, dtype=torch.float32)
    held = weight_bytes(config, "auto", CPU, torch.float32)
    assert held == pytest.approx(loaded.model.num_bytes, rel=1e-3)  # which has a few buffers besides
    assert held == 4 * num_parameters(config)
    assert weight_bytes(config, "auto", CPU, torch.bfloat16) == held // 2
    assert plan_memory(config, EngineOptions(url=""), CPU, torch.float32).weights == held


def test_the_width_of_mlps(tmp_path: Path) -> None:
    sizes = {kind: model_config(described(kind, tmp_path / kind)).intermediate_size for kind in MLPS}
    assert sizes == MLPS


def test_an_fp8_cache(tmp_path: Path) -> None:
    model = load_model(fallback_model("gpt_neox", tmp_path), device=CPU, dtype=torch.float32).model
    tokens = list(range(3, 33))
    exact, rounded = (
        PagedRun(model, sequences=1, longest=32, kv_dtype=dtype).step({0: tokens})[0] for dtype in (None, FP8)
    )
    assert 0 < (exact - rounded).norm() < 0.05 * exact.norm()


def test_fp8_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="in its own type only"):
        load_model(fallback_model("arcee", tmp_path), device=CPU, dtype=torch.float32, weights="fp8")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: tensors.pop("gpt_neox.layers.1.mlp.dense_h_to_4h.bias"), "missing keys: .*dense_h_to_4h.bias"),
        (lambda tensors: tensors.update(stray=torch.zeros(2)), "unexpected keys: .*stray"),
        (lambda tensors: tensors.update({"embed_out.weight": torch.zeros(3, 48)}), "mismatched keys: .*lm_head"),
    ],
)
def test_weights_that_do_not_fit_the_configuration(
    change: Callable[[dict[str, Tensor]], object], said: str, tmp_path: Path
) -> None:
    folder = fallback_model("gpt_neox", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=said):
        load_model(folder, device=CPU, dtype=torch.float32)


def test_values_that_are_not_finite_are_found_when_asked(tmp_path: Path) -> None:
    folder = fallback_model("gpt_neox", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["gpt_neox.final_layer_norm.weight"][3] = torch.nan
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError, match=r"final_layer_norm\.weight': 1 of 48 values are NaN"):
        load_model(folder, device=CPU, dtype=torch.float32, finite=True)


def test_a_truncated_file(tmp_path: Path) -> None:
    folder = fallback_model("gpt_neox", tmp_path)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ModelLoadError, match=r"truncated|can't load"):
        load_model(folder, device=CPU, dtype=torch.float32)


def test_no_memory_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_model: nn.Module, _device: torch.device) -> nn.Module:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(nn.Module, "to", full)
    with pytest.raises(OutOfMemoryError, match="do not fit cpu"):
        load_model(fallback_model("arcee", tmp_path), device=CPU, dtype=torch.float32)


def test_random_weights(tmp_path: Path) -> None:
    folder = described("arcee", tmp_path)
    (folder / MARKER).touch()
    loaded = load_model(folder, device=CPU, dtype=torch.float32)
    run = PagedRun(loaded.model, sequences=1, longest=16)
    assert run.step({0: [5, 6, 7]})[0].isfinite().all()


def test_steps_as_transformers_computes_them(tmp_path: Path) -> None:
    """Chunks and single tokens of two sequences in one step, and logits of some tokens only."""
    folder = fallback_model("stablelm", tmp_path)
    tokens = torch.randint(3, 131, (40,), generator=torch.Generator().manual_seed(5)).tolist()
    with torch.no_grad():
        expected = reference_model(folder)(torch.tensor([tokens])).logits[0]
    run = PagedRun(load_model(folder, device=CPU, dtype=torch.float32).model, sequences=2, longest=64)
    first = run.step({0: tokens[:30]})[0]
    both = run.step({0: tokens[30:31], 1: tokens[:9]})
    wanted = run.wanted({0: tokens[31:], 1: tokens[9:12]}, [8, 9, 11])
    parts = torch.cat([first, both[0], both[1], wanted])
    rows = [*range(31), *range(9), 39, 9, 11]
    torch.testing.assert_close(parts, expected[rows], atol=1e-4, rtol=1e-4)


def test_tokens_that_mix_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = GPTNeoXMLP.forward
    monkeypatch.setattr(GPTNeoXMLP, "forward", lambda self, x: plain(self, x + x.roll(1, dims=1)))
    with pytest.raises(UnsupportedModelError, match="depend on other sequences"):
        load_model(fallback_model("gpt_neox", tmp_path), device=CPU, dtype=torch.float32)


def test_positions_that_are_not_heeded_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = GPTNeoXModel.forward

    def counting(self: GPTNeoXModel, input_ids: Tensor, position_ids: Tensor, **others: Any) -> Any:
        places = torch.arange(position_ids.shape[1], device=position_ids.device)[None]
        return plain(self, input_ids, position_ids=places, **others)

    folder = fallback_model("gpt_neox", tmp_path)
    monkeypatch.setattr(GPTNeoXModel, "forward", counting)
    with pytest.raises(UnsupportedModelError, match="on their places"):
        load_model(folder, device=CPU, dtype=torch.float32)


@pytest.mark.parametrize("divided", [True, False])
def test_falcon_with_alibi(tmp_path: Path, *, divided: bool) -> None:
    """In transformers' eager attention it counts twice; in torch's once, as published."""
    folder = fallback_model("falcon", tmp_path, alibi=True, new_decoder_architecture=divided)
    tokens = torch.randint(3, 131, (60,), generator=torch.Generator().manual_seed(5)).tolist()
    theirs = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa")
    with torch.no_grad():
        expected = theirs(torch.tensor([tokens])).logits[0]
    loaded = load_model(folder, device=CPU, dtype=torch.float32)
    assert loaded.config.num_kv_heads == (2 if divided else 1)
    run = PagedRun(loaded.model, sequences=1, longest=64)
    parts = [run.step({0: tokens[:50]})[0], *(run.step({0: [token]})[0] for token in tokens[50:])]
    torch.testing.assert_close(torch.cat(parts), expected, atol=1e-4, rtol=1e-4)


def test_caches_that_flex_attention_does_not_read_are_refused(tmp_path: Path) -> None:
    config = model_config(described("mpt", tmp_path, hidden_size=96))
    with pytest.raises(InvalidRequestError, match="no KV in fp8: use --kv-dtype auto"):
        plan_memory(config, EngineOptions(url="", kv_dtype="fp8"), CPU, torch.float32)
    plan_memory(config, EngineOptions(url="", block_size=24), CPU, torch.float32)
    with pytest.raises(InvalidRequestError, match="no blocks of 24 tokens"):
        plan_memory(config, EngineOptions(url="", block_size=24), GPU, torch.bfloat16, memory=1 << 40)


@pytest.mark.parametrize(("kind", "remedy"), [("mpt", "--device cpu"), ("arcee", "--attention auto")])
def test_heads_that_flex_attention_does_not_compute_on_a_gpu_are_refused(
    kind: str, remedy: str, tmp_path: Path
) -> None:
    options = EngineOptions(url="", attention="flex")
    narrow = model_config(described(kind, tmp_path))
    plan_memory(narrow, options, CPU, torch.float32)
    with pytest.raises(InvalidRequestError, match=f"heads of 16 numbers or more, .* heads of 8: use {remedy}"):
        plan_memory(narrow, options, GPU, torch.bfloat16, memory=1 << 40)
    wide = model_config(described(kind, tmp_path, hidden_size=96))
    plan_memory(wide, options, GPU, torch.bfloat16, memory=1 << 40)


def test_the_tables_name_architectures_of_transformers() -> None:
    for kind in (*CHECKED, *REFUSED):
        assert AutoConfig.for_model(kind).model_type == kind
    assert not set(CHECKED) & set(REFUSED)
