"""Each key of an architecture is read, is known to be harmless, or is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from torch import Tensor

from tests.support.gguf_files import write_gguf
from tests.support.loading import load_model
from tests.support.paged_run import PagedRun
from tests.support.tiny_models import reference_model, tiny_model
from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.weights.gguf.configuration import configuration
from thothy_ai.engine.weights.gguf.file import GGUFFile

CPU = torch.device("cpu")
TOKENS = torch.randint(3, 131, (40,), generator=torch.Generator().manual_seed(3)).tolist()
Metadata = Callable[[gguf.GGUFWriter], None]
GROUPS = ("LLM", "Attention", "Rope", "SSM", "WKV", "PosNet", "ConvNext", "Classifier", "Diffusion", "LLaVA")
ARCHITECTURE = "{arch}"
HARMLESS = {  # which llama.cpp does not read, reads of other architectures only, or finds out from something else
    ".vocab_size", ".tensor_data_layout", ".attention.layer_norm_epsilon", ".rope.scaling.finetuned",
    ".rope.scaling.original_context_length", ".rope.scaling.yarn_beta_fast", ".rope.scaling.yarn_beta_slow",
}  # fmt: skip
PATTERN = "attention.sliding_window_pattern"


def known_keys() -> list[str]:
    """The keys of architectures that the `gguf` package knows, without the architecture's name."""
    found = [value for group in GROUPS for value in vars(getattr(gguf.Keys, group, object)).values()]
    keys = [value for value in found if isinstance(value, str) and value.startswith(ARCHITECTURE)]
    return sorted({key.removeprefix(ARCHITECTURE) for key in keys if key.count("{") == 1})


def written(folder: Path, architecture: str, extra: Metadata) -> Path:
    return write_gguf(folder, folder.parent / "t.gguf", architecture=architecture, extra=extra)


def test_no_key_of_the_package_s_own_list_is_overlooked(tmp_path: Path) -> None:
    folder = tiny_model("qwen2", tmp_path, num_hidden_layers=1)
    plain = GGUFFile(written(folder, "qwen2", lambda _: None))
    configuration(plain)
    keys = [key for key in known_keys() if not plain.holds(key)]
    assert len(keys) > 80
    passed = set()
    for key in keys:
        path = written(folder, "qwen2", lambda writer, key=key: writer.add_uint32(f"qwen2{key}", 3))  # type: ignore[misc]
        try:
            configuration(GGUFFile(path))
            passed.add(key)
        except ModelLoadError as error:
            said = str(error)
            assert f"qwen2{key}" in said or "partial rotary" in said, key
    assert passed == HARMLESS


def set_to(key: str, value: Any) -> Metadata:
    kind = gguf.GGUFValueType.get_type(value) if not isinstance(value, int) or isinstance(value, bool) else None
    return lambda writer: writer.add_key_value(key, value, kind or gguf.GGUFValueType.UINT32)


def together(*parts: Metadata) -> Metadata:
    def extra(writer: gguf.GGUFWriter) -> None:
        for part in parts:
            part(writer)

    return extra


def yarn(key: str, value: float) -> Metadata:
    """YaRN, and one more of its keys."""
    said = {".type": "yarn", ".factor": 4.0, ".original_context_length": 64, key: value}
    return together(*(set_to(f"qwen3.rope.scaling{name}", each) for name, each in said.items()))


REFUSED: dict[str, tuple[str, str, Metadata, str]] = {
    "values of another size": ("olmo2", "olmo2", set_to("olmo2.attention.value_length_swa", 8), "value_length_swa 8"),
    "positions of windows": ("cohere2", "cohere2", set_to("cohere2.rope.freq_base_swa", 500.0), "freq_base_swa 500"),
    "no causality": ("qwen3", "qwen3", set_to("qwen3.attention.causal", False), "bidirectional attention"),
    "windows of a family without": ("qwen3", "qwen3", set_to(f"qwen3.{PATTERN}", 4), "sliding_window_pattern 4"),
    "a key that no list has": ("qwen2", "qwen2", set_to("qwen2.attention.novelty", 0.5), "novelty 0.5"),
    "a key with a list": ("qwen2", "qwen2", set_to("qwen2.swiglu_clamp_exp", [0.0, 7.0]), "swiglu_clamp_exp is not"),
    "an embedding model": ("qwen3", "qwen3", set_to("qwen3.pooling_type", 3), "pooling_type 3"),
    "a factor of yarn": ("qwen3", "qwen3", yarn(".yarn_ext_factor", 0.5), "yarn_ext_factor 0.5"),
    "yarn without its ramp": ("qwen3", "qwen3", yarn(".yarn_ext_factor", 0.0), "yarn_ext_factor 0.0"),
    "yarn of no size": ("qwen3", "qwen3", yarn(".yarn_attn_factor", 0.0), "yarn_attn_factor 0.0"),
    "a ramp without yarn": (
        "qwen3", "qwen3", set_to("qwen3.rope.scaling.yarn_ext_factor", 1.0), "yarn_ext_factor 1.0"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_what_a_key_says_beyond_is_refused(kind: str, tmp_path: Path) -> None:
    family, architecture, extra, named = REFUSED[kind]
    required = {"cohere2": ((".logit_scale", 0.7), (".attention.sliding_window", 12))}.get(family, ())
    metadata = together(extra, *(set_to(architecture + key, value) for key, value in required))
    path = written(tiny_model(family, tmp_path), architecture, metadata)
    with pytest.raises(UnsupportedModelError, match=named):
        configuration(GGUFFile(path))


@pytest.mark.parametrize("key", [".yarn_beta_fast", ".yarn_beta_slow"])
def test_yarn_between_no_rotations_is_refused(key: str, tmp_path: Path) -> None:
    path = written(tiny_model("qwen3", tmp_path), "qwen3", yarn(key, 0.0))
    with pytest.raises(ModelLoadError, match=f"'qwen3.rope.scaling{key}' is 0$"):
        configuration(GGUFFile(path))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({".scaling.type": "linear", ".scaling.factor": 0.0}, "inf"),
        ({".scaling.type": "linear", ".scaling.factor": -4.0}, "-0.25"),
        ({".scaling.type": "yarn", ".scaling.factor": 0.0, ".scaling.original_context_length": 64}, "nan"),
        ({".freq_base": 0.0}, "inf"),
    ],
)
def test_positions_that_cannot_be_computed_are_refused(said: dict[str, Any], found: str, tmp_path: Path) -> None:
    extra = together(*(set_to(f"llama.rope{key}", value) for key, value in said.items()))
    path = written(tiny_model("llama", tmp_path), "llama", extra)
    with pytest.raises(ModelLoadError, match=rf"{path.name}: .*a rotary frequency is {found}: check rope_theta"):
        load_model(path, device=CPU, dtype=torch.float32, cache_dir=tmp_path / "cache")


WINDOWS = (True, False, False, True)
ROPE = {"rope_type": "default", "rope_theta": 10000.0}
LOCAL = {"full_attention": ROPE, "sliding_attention": ROPE | {"rope_theta": 200.0}}
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "gemma2": (
        "gemma2", {"query_pre_attn_scalar": 16}, {".attn_logit_softcapping": 2.0, ".final_logit_softcapping": 5.0}
    ),
    "gemma3_text": (
        "gemma3", {"query_pre_attn_scalar": 16, "rope_parameters": LOCAL}, {".rope.freq_base_swa": 200.0}
    ),
    "cohere2": ("cohere2", {}, {".logit_scale": 0.7}),
}  # fmt: skip
LAYERS: dict[str, tuple[Any, tuple[bool, ...]]] = {
    "a list": ([*WINDOWS], WINDOWS),
    "a list of numbers": ([1, 0, 0, 1], WINDOWS),
    "the last of two": (2, (True, False, True, False)),
    "the last of three": (3, (True, True, False, True)),
    "none without": (0, (True,) * 4),
    "all without": (1, (False,) * 4),
}


def logits(path: Path, cache: Path) -> Tensor:
    loaded = load_model(path, device=CPU, dtype=torch.float32, cache_dir=cache)
    return PagedRun(loaded.model, 1, 48).step({0: TOKENS})[0]


def check(folder: Path, architecture: str, extra: Metadata) -> None:
    """The file computes what transformers does with the folder."""
    got = logits(written(folder, architecture, extra), folder.parent / "cache")
    with torch.no_grad():
        expected = reference_model(folder)(torch.tensor([TOKENS])).logits[0]
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("family", "said"), [*(("cohere2", said) for said in LAYERS), ("gemma2", "a list"), ("gemma3_text", "a list")]
)
def test_layers_with_a_window_are_those_that_the_file_names(family: str, said: str, tmp_path: Path) -> None:
    architecture, overrides, metadata = FAMILIES[family]
    pattern, windows = LAYERS[said]
    kinds = ["sliding_attention" if each else "full_attention" for each in windows]
    folder = tiny_model(family, tmp_path, num_hidden_layers=4, **overrides | {"layer_types": kinds})
    values = {".attention.sliding_window": 12, f".{PATTERN}": pattern} | metadata
    check(folder, architecture, together(*(set_to(architecture + key, value) for key, value in values.items())))


@pytest.mark.parametrize("pattern", [[True], "every second", True, [0.5] * 3])
def test_a_pattern_that_does_not_fit_the_layers(pattern: Any, tmp_path: Path) -> None:
    values = {".attention.sliding_window": 12, f".{PATTERN}": pattern, ".logit_scale": 0.7}
    extra = together(*(set_to(f"cohere2{key}", value) for key, value in values.items()))
    path = written(tiny_model("cohere2", tmp_path), "cohere2", extra)
    with pytest.raises(ModelLoadError, match=r"cohere2.attention.sliding_window_pattern' does not fit 3 layers"):
        configuration(GGUFFile(path))


def test_a_factor_without_a_type_is_linear(tmp_path: Path) -> None:
    folder = tiny_model("qwen3", tmp_path, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 3.0})
    check(folder, "qwen3", set_to("qwen3.rope.scaling.factor", 3.0))


def test_keys_that_say_nothing_more(tmp_path: Path) -> None:
    values = {
        ".vocab_size": 131, ".attention.key_length_swa": 16, ".rope.freq_base_swa": 10000.0, ".expert_count": 0,
        ".rope.scaling.type": "none", ".rope.scaling.factor": 8.0, ".rope.scaling.attn_factor": 1.0,
        ".rope.scaling.yarn_attn_factor": 1.0, ".rope.scaling.yarn_ext_factor": 0.0,
        ".attention.causal": True, ".attention.max_alibi_bias": 0.0, ".swiglu_clamp_exp": [0.0, 0.0],
        ".tensor_data_layout": "Meta AI original pth", ".use_parallel_residual": False, PATTERN: 6,
    }  # fmt: skip
    folder = tiny_model("llama", tmp_path)
    check(folder, "llama", together(*(set_to(f"llama{key}", value) for key, value in values.items())))
