"""PEFT folders that this model cannot use are refused, each with what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.adapter_oracle import adaptable
from tests.support.loading import load_model
from tests.support.peft_folders import PREFIX, adapter_tensors, write_adapter
from tests.support.tiny_models import tiny_model
from thothy_ai.engine.adapters.folder import AdaptedModel, read_adapter
from thothy_ai.engine.api.errors import AdapterLoadError, UnsupportedAdapterError
from thothy_ai.engine.checkpoint.adapter import AdapterFiles
from thothy_ai.engine.execution.host_memory import HostMemory

CPU = torch.device("cpu")
Q = f"{PREFIX}model.layers.0.self_attn.q_proj"
KV_B = f"{PREFIX}model.layers.0.self_attn.kv_b_proj"
Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[AdaptedModel, Tensors]:
    folder = tiny_model("llama", tmp_path_factory.mktemp("model"))
    model = load_model(folder, device=CPU, dtype=torch.float32).model
    made = AdaptedModel(model.adapters, ("house-base", "/models/house-base"), lambda name: name, 131, torch.float32, 16,
                pinned=False, make_room=lambda *_: None)  # fmt: skip
    return made, adapter_tensors(adaptable(folder), 4)


def spoiled(**changes: Callable[[Tensor], Tensor]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {f"{Q}.lora_{side}.weight": change(tensors[f"{Q}.lora_{side}.weight"])
                                      for side, change in changes.items()}  # fmt: skip


def with_nan(tensor: Tensor) -> Tensor:
    changed = tensor.clone()
    changed[0, 1] = torch.nan
    return changed


WRONG: dict[str, tuple[Callable[[Tensors], Tensors], type[AdapterLoadError], str]] = {
    "another width": (spoiled(A=lambda a: a[:, :-1]), AdapterLoadError, r"shape \[4, 47\].*need \[4, 48\]"),
    "another height": (spoiled(B=lambda b: b[:-1]), AdapterLoadError, r"shape \[95, 4\].*need \[96, 4\]"),
    "another rank than it says": (spoiled(A=lambda a: a[:3]), AdapterLoadError, r"shape \[3, 48\]"),
    "NaN": (spoiled(A=with_nan), AdapterLoadError, "1 values are NaN or infinite"),
    "integers": (spoiled(A=lambda a: a.to(torch.int8)), UnsupportedAdapterError, "quantized"),
    "half a pair": (lambda t: {k: v for k, v in t.items() if k != f"{Q}.lora_B.weight"}, AdapterLoadError, "only one"),
    "DoRA": (lambda t: t | {f"{Q}.lora_magnitude_vector": torch.ones(96)}, UnsupportedAdapterError, "magnitude"),
    "a head of its own": (
        lambda t: t | {f"{PREFIX}lm_head.weight": torch.ones(140, 48)}, UnsupportedAdapterError, "lm_head",
    ),
    "an adapter of the head": (
        lambda t: t | {f"{PREFIX}lm_head.lora_A.weight": torch.ones(4, 48)}, UnsupportedAdapterError, "lm_head",
    ),
    "experts": (
        lambda t: t | {f"{PREFIX}model.layers.0.mlp.experts.0.up_proj.lora_A.weight": torch.ones(4, 48)},
        UnsupportedAdapterError,
        "experts",
    ),
    "another model's attention": (
        lambda t: t | {f"{KV_B}.lora_A.weight": torch.ones(4, 48)}, AdapterLoadError, "kv_b_proj: it is an adapter of",
    ),
    "more layers": (
        lambda t: t | {f"{PREFIX}model.layers.7.self_attn.q_proj.lora_A.weight": torch.ones(4, 48)},
        AdapterLoadError,
        "no linear layer model.layers.7",
    ),
    "one layer twice": (
        lambda t: t | {f"{Q}.lora_A.default.weight": torch.ones(4, 48)}, AdapterLoadError, "same layer",
    ),
    "nothing": (lambda _: {}, AdapterLoadError, "no tensors"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_tensors(wrong: str, base: tuple[AdaptedModel, Tensors], tmp_path: Path) -> None:
    change, error, says = WRONG[wrong]
    folder = write_adapter(tmp_path, change(base[1]), 4, target_modules=[])
    with pytest.raises(error, match=says) as refused:
        read_adapter("acme", folder, base[0])
    assert type(refused.value) is error


def test_what_expands_latents_has_none(base: tuple[AdaptedModel, Tensors], tmp_path: Path) -> None:
    latent = load_model(tiny_model("deepseek_v3", tmp_path / "model"), device=CPU, dtype=torch.float32).model
    folder = write_adapter(tmp_path, {f"{KV_B}.lora_A.weight": torch.ones(4, 20)}, 4, target_modules=[])
    with pytest.raises(UnsupportedAdapterError, match="kv_b_proj are not implemented: latent attention"):
        read_adapter("acme", folder, replace(base[0], bank=latent.adapters))


def test_a_file_that_was_cut_off(base: tuple[AdaptedModel, Tensors], tmp_path: Path) -> None:
    weights = write_adapter(tmp_path, base[1], 4) / "adapter_model.safetensors"
    data = weights.read_bytes()
    for end in (0, 5, 100, len(data) // 2, len(data) - 1):
        weights.write_bytes(data[:end])
        with pytest.raises(AdapterLoadError, match="truncated"):
            read_adapter("acme", tmp_path, base[0])


@pytest.mark.parametrize(("dtype", "alpha"), [(torch.float32, 1e300), (torch.float16, 1e8), (torch.bfloat16, 1e41)])
def test_weights_that_overflow_once_they_are_scaled(
    dtype: torch.dtype, alpha: float, base: tuple[AdaptedModel, Tensors], tmp_path: Path
) -> None:
    folder = write_adapter(tmp_path, base[1], 4, lora_alpha=alpha)
    with pytest.raises(AdapterLoadError, match=r"lora_B.* beyond the range of"):
        read_adapter("acme", folder, replace(base[0], dtype=dtype))


def test_the_digest_is_of_the_weights_that_are_used(
    base: tuple[AdaptedModel, Tensors], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever trains may save over the folder, or cut the file short, at any time."""
    weights = write_adapter(tmp_path, base[1], 4) / "adapter_model.safetensors"
    before = AdapterFiles.read(tmp_path).digest
    read = AdapterFiles.read

    def then_saved(folder: Path) -> AdapterFiles:
        files = read(folder)
        weights.write_bytes(weights.read_bytes()[:300])
        return files

    monkeypatch.setattr(AdapterFiles, "read", then_saved)
    info, held = read_adapter("acme", tmp_path, base[0])
    assert info.digest == before
    module = base[0].bank.modules["model.layers.0.self_attn.q_proj"]
    low, _ = base[0].bank.views(held.numbers[None], 16)[module.site]
    assert torch.equal(low[0, module.part * 16 : module.part * 16 + 4], base[1][f"{Q}.lora_A.weight"])


def test_patterns_match_the_names_that_peft_saw(base: tuple[AdaptedModel, Tensors], tmp_path: Path) -> None:
    """In a multimodal model, the layers of the text part have other names than here."""
    there = {name.replace("model.layers", "model.language_model.layers"): each for name, each in base[1].items()}
    patterns = {"^model.language_model.layers.0.self_attn.q_proj": 12}
    folder = write_adapter(tmp_path, there, 4, alpha_pattern=patterns)
    multimodal = replace(base[0], rename=lambda name: name.replace("language_model.", ""))
    _, held = read_adapter("acme", folder, multimodal)
    module = base[0].bank.modules["model.layers.0.self_attn.q_proj"]
    _, high = base[0].bank.views(held.numbers[None], 16)[module.site]
    rows = high[0, module.first : module.first + module.rows, :4]
    b = base[1][f"{Q}.lora_B.weight"] * 3
    assert torch.equal(rows, b if module.order is None else b[module.order])


def test_an_adapter_that_takes_much_of_the_hosts_memory_is_refused(
    base: tuple[AdaptedModel, Tensors], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_adapter(tmp_path, base[1], 4)
    monkeypatch.setattr("thothy_ai.engine.adapters.folder.host_memory", lambda: HostMemory(100_000, 1 << 40))
    with pytest.raises(AdapterLoadError, match=r"GB of host memory.*--adapter-rank"):
        read_adapter("acme", folder, base[0])


@pytest.mark.parametrize(
    ("name", "fits"),
    [("", True), ("org/House_Base", True), ("/home/x/house-base/", True), ("house", True), ("org/other-7b", False)],
)
def test_the_base_that_it_names(name: str, fits: bool, base: tuple[AdaptedModel, Tensors], tmp_path: Path) -> None:
    folder = write_adapter(tmp_path, base[1], 4, base_model_name_or_path=name)
    if fits:
        info, weights = read_adapter("acme", folder, base[0])
        assert (info.name, info.rank, info.base, info.num_bytes) == ("acme", 4, name, weights.numbers.nbytes)
        return
    with pytest.raises(AdapterLoadError, match="adapter of org/other-7b"):
        read_adapter("acme", folder, base[0])


def test_what_the_engine_has_no_room_for(base: tuple[AdaptedModel, Tensors], tmp_path: Path) -> None:
    with pytest.raises(AdapterLoadError, match="start it with --adapter-rank 4"):
        read_adapter("acme", write_adapter(tmp_path, base[1], 4), replace(base[0], max_rank=3))
    with pytest.raises(AdapterLoadError, match="outside the vocabulary of 131"):
        read_adapter("acme", write_adapter(tmp_path, base[1], 4, alora_invocation_tokens=[5, 131]), base[0])
