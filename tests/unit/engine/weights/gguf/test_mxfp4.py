"""GGUF files whose experts are in MXFP4: these stay as they are, in every family, and mean what they meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Quant
from safetensors.numpy import load_file as load_numpy
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import load_file
from torch import Tensor

from tests.support.block_formats import mxfp4
from tests.support.gguf_files import Array, write_gguf
from tests.support.loading import load_model
from tests.support.mxfp4_checkpoint import Checkpoints, mxfp4_checkpoints
from tests.support.oracle import NEW_TOKENS, Oracle, generate, options, random_prompts
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import tiny_model
from tests.unit.engine.weights.gguf.test_experts import CASES, gpt_oss
from thothy_ai.engine.api.errors import UnsupportedModelError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.model_check.sizing import plan_memory, weight_bytes
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.gguf.tensors import laid_out
from thothy_ai.engine.weights.loader import LoadedModel
from thothy_ai.kernels.experts import Mxfp4
from thothy_ai.kernels.reference.mxfp4 import dequantize_mxfp4

CPU = torch.device("cpu")
Choose = Callable[[str], Quant]
TOKENS = torch.randint(3, 131, (30,), generator=torch.Generator().manual_seed(3)).tolist()


def load(path: Path, weights: str = "auto", dtype: torch.dtype = torch.float32) -> LoadedModel:
    return load_model(path, device=CPU, dtype=dtype, cache_dir=path.parent / "cache", weights=weights)


def logits(loaded: LoadedModel) -> Tensor:
    return PagedRun(loaded.model, 1, 32).step({0: TOKENS})[0]


def converted(path: Path, *, packed: bool = False) -> Path:
    """The folder that the file became."""
    folders = [each.parent for each in (path.parent / "cache").rglob("config.json")]
    (found,) = (each for each in folders if ('"Q8_0"' in (each / "config.json").read_text()) == packed)
    return found


def experts_in_mxfp4(name: str) -> Quant:
    return Quant.MXFP4 if "exps" in name else Quant.Q8_0 if "attn" in name else Quant.F32


def write(family: str, tmp_path: Path, choose: Choose = experts_in_mxfp4) -> Path:
    case = CASES[family]
    sizes = {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2, "tie_word_embeddings": False}
    inner = {name: 32 for name in ("moe_intermediate_size", "intermediate_size") if name in case.sizes}
    folder = rounded(tiny_model(family, tmp_path, initializer_range=0.15, **{**sizes, **case.sizes, **inner}))

    def metadata(writer: gguf.GGUFWriter) -> None:
        case.metadata(writer)
        if (key := f"{case.architecture}.expert_feed_forward_length") in writer.kv_data[0]:
            writer.kv_data[0][key].value = 32

    return write_gguf(
        folder, tmp_path / f"{family}.gguf", architecture=case.architecture, choose=choose, extra=metadata
    )


def rounded(folder: Path) -> Path:
    """The model of numbers that the file's types hold exactly."""
    tensors = load_numpy(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if "experts" in name and tensor.ndim > 1 and "shared" not in name and not name.endswith("bias"):
            turned = folder.name in {"gpt_oss", "llama4_text"}  # whose stacks are transposed
            held = round_trip(tensor.swapaxes(1, 2) if turned else tensor, Quant.MXFP4)
            tensors[name] = np.ascontiguousarray(held.swapaxes(1, 2) if turned else held)
        elif "self_attn" in name and tensor.ndim > 1:
            tensors[name] = round_trip(tensor, Quant.Q8_0)
    save_numpy(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def round_trip(tensor: Array, kind: Quant) -> Array:
    held: Array = gguf.quants.dequantize(gguf.quants.quantize(np.ascontiguousarray(tensor), kind), kind)
    return held.reshape(tensor.shape)


def test_blocks_are_laid_out_anew() -> None:
    """Any bytes, except the scale that stands for NaN."""
    stack = torch.randint(0, 255, (3, 5, 2 * 17), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    blocks, scales = laid_out(stack)
    assert (blocks.shape, scales.shape) == ((3, 5, 2, 16), (3, 5, 2))
    decoded = [list(mxfp4(bytes(block.tolist()))) for block in stack.view(-1, 17)]
    expected = torch.tensor(decoded, dtype=torch.float64).float().view(3, 5, 64)
    assert torch.equal(dequantize_mxfp4(Mxfp4(blocks.flatten(2), scales)), expected)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    """GPT-OSS as it is published, and the numbers that transformers makes of it."""
    return mxfp4_checkpoints(tmp_path_factory.mktemp("published"))


def test_a_file_becomes_what_is_published(checkpoints: Checkpoints, tmp_path: Path) -> None:
    """The package quantizes numbers that MXFP4 holds exactly to themselves, if perhaps with another scale."""
    path = write_gguf(
        checkpoints.plain,
        tmp_path / "o.gguf",
        architecture="gpt-oss",
        choose=experts_in_mxfp4,
        extra=_sizes_of_published,
    )
    load(path)
    got, wanted = (load_file(folder / "model.safetensors") for folder in (converted(path), checkpoints.packed))
    assert got.keys() == wanted.keys()
    stacks = [name for name in wanted if name.endswith("_blocks")]
    assert len(stacks) == 6
    for name in stacks:
        pairs = [(each[name].flatten(2), each[name.replace("_blocks", "_scales")]) for each in (got, wanted)]
        assert torch.equal(*(dequantize_mxfp4(Mxfp4(*pair)) for pair in pairs)), name


def _sizes_of_published(writer: gguf.GGUFWriter) -> None:
    gpt_oss(writer)
    writer.kv_data[0]["gpt-oss.expert_feed_forward_length"].value = 32


@pytest.mark.parametrize("weights", ["auto", "stored"])
@pytest.mark.parametrize("family", CASES)
def test_greedy_tokens_are_those_of_transformers(family: str, weights: str, tmp_path: Path) -> None:
    path = write(family, tmp_path)
    loaded, prompts = load(path, weights), random_prompts(131)
    oracle = Oracle(loaded, prompts, generate(tmp_path / family, prompts, NEW_TOKENS, CPU))
    oracle.check(options(preempted=True, chunked=True, overlap=True, prefix_cache=True))


@pytest.mark.parametrize("family", CASES)
def test_experts_take_their_packed_size_and_no_more(family: str, tmp_path: Path) -> None:
    loaded = load(write(family, tmp_path), dtype=torch.bfloat16)
    planned = weight_bytes(loaded.config, "auto", CPU, torch.bfloat16)
    assert planned == loaded.model.num_bytes
    sizes = loaded.config.experts
    assert sizes is not None
    plain = load(tmp_path / family, dtype=torch.bfloat16).model.num_bytes
    numbers = sizes.layers * sizes.count * 3 * 64 * 32
    assert plain - planned == numbers * (2 - 1 / 2 - 1 / 32)


def test_experts_of_several_types_are_dequantized(tmp_path: Path) -> None:
    def mixed(name: str) -> Quant:
        return Quant.Q8_0 if "blk.1.ffn_down_exps" in name else experts_in_mxfp4(name)

    loaded = load(write("gpt_oss", tmp_path, mixed))
    assert loaded.config.quantization is None
    prompts = random_prompts(131)
    reference = generate(converted(tmp_path / "gpt_oss.gguf"), prompts, NEW_TOKENS, CPU)
    Oracle(loaded, prompts, reference).check(options(preempted=False, chunked=False, overlap=False, prefix_cache=False))


def test_a_linear_layer_in_mxfp4_is_dequantized(tmp_path: Path) -> None:
    path = write("qwen3_moe", tmp_path, lambda name: Quant.MXFP4 if "attn" in name or "exps" in name else Quant.F32)
    assert torch.equal(logits(load(path)), logits(load(path, "stored")))


def test_another_type_of_experts_is_refused(tmp_path: Path) -> None:
    path = write("qwen3_moe", tmp_path)
    load(path)
    config = converted(path) / "config.json"
    content = json.loads(config.read_text())
    content["quantization_config"]["experts"] = "NVFP4"
    config.write_text(json.dumps(content))
    with pytest.raises(UnsupportedModelError, match="experts 'NVFP4'"):
        model_config(config.parent)


@pytest.mark.parametrize(
    ("weights", "named"), [("auto", "bfloat16, experts in mxfp4"), ("stored", "gguf, experts in mxfp4")]
)
def test_plans_name_the_type_of_experts(weights: str, named: str, tmp_path: Path) -> None:
    config = load(write("qwen3_moe", tmp_path), weights).config
    assert plan_memory(config, EngineOptions(url="", weights=weights), CPU, torch.bfloat16).weight_type == named
