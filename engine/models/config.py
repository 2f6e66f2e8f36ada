"""`ModelConfig`: a decoder's shape, read once from a Hugging Face folder's config.json through transformers.

What this engine would compute wrongly is refused here, by name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from thothy_ai.engine.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.models.family import Family

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_STATIC_ROPE = {"linear", "llama3", "yarn"}  # others change with a sequence's length, so cached keys would be stale


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary frequencies [head_dim / 2], and what cosines and sines are multiplied by."""

    inverse_frequencies: tuple[float, ...]
    scaling: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's shape, and what its family reads beyond that. `max_context` ends where the family's does."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: Rope
    architecture: Family
    tied_embeddings: bool
    max_context: int
    eos_token_ids: tuple[int, ...]

    @classmethod
    def from_folder(cls, folder: Path) -> ModelConfig:
        """Read `folder`/config.json; ModelLoadError, or UnsupportedModelError naming what is not implemented."""
        model_type = _model_type(folder)
        if model_type not in FAMILIES:
            raise UnsupportedModelError(
                f"{folder}: architecture {model_type!r} is not implemented (known: {', '.join(FAMILIES)})"
            )
        config, eos_token_ids = _read(folder)
        return cls._from_config(folder, config, eos_token_ids)

    @classmethod
    def _from_config(cls, folder: Path, config: PreTrainedConfig, eos_token_ids: tuple[int, ...]) -> ModelConfig:
        _refuse_quantized(folder, config)
        try:
            architecture = FAMILIES[config.model_type].read(config)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{folder}: {error}") from None
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        kv_heads = config.num_key_value_heads or heads
        if heads % kv_heads or head_dim % 2:
            raise ModelLoadError(f"{folder}: {heads} heads over {kv_heads} KV heads of {head_dim} do not divide")
        return cls(
            family=config.model_type,
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_layers=config.num_hidden_layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            norm_eps=config.rms_norm_eps,
            rope=_rope(folder, config, head_dim),
            architecture=architecture,
            tied_embeddings=config.tie_word_embeddings,
            max_context=min(config.max_position_embeddings, architecture.max_context or config.max_position_embeddings),
            eos_token_ids=eos_token_ids,
        )


def _model_type(folder: Path) -> str:
    path = folder / "config.json"
    if not folder.exists():
        raise ModelLoadError(f"{folder}: no such folder")
    if not path.is_file():
        raise ModelLoadError(f"{folder}: not a Hugging Face model folder (no config.json)")
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["model_type"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelLoadError(f"{path}: not a model configuration: {error!r}") from error


def _read(folder: Path) -> tuple[PreTrainedConfig, tuple[int, ...]]:
    """The configuration, and the end-of-text tokens that it and generation_config.json name."""
    from huggingface_hub.errors import StrictDataclassError  # noqa: PLC0415  as below
    from transformers import AutoConfig, GenerationConfig  # noqa: PLC0415  slow to import

    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        ends = _token_ids(config.eos_token_id)
        if (folder / "generation_config.json").is_file():
            ends += _token_ids(GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id)
    except (OSError, ValueError, TypeError, KeyError, StrictDataclassError) as error:
        raise ModelLoadError(f"{folder}: config.json can't be used: {' '.join(str(error).split())}") from error
    return config, tuple(dict.fromkeys(ends))


def _refuse_quantized(folder: Path, config: PreTrainedConfig) -> None:
    quantization = getattr(config, "quantization_config", None)
    if quantization is not None:
        raise UnsupportedModelError(f"{folder}: quantized safetensors are not implemented ({quantization})")


def _rope(folder: Path, config: PreTrainedConfig, head_dim: int) -> Rope:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: PLC0415  slow to import

    parameters = config.rope_parameters
    kind = parameters.get("rope_type", "default")
    if parameters.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModelError(f"{folder}: partial rotary embedding is not implemented")
    if kind == "default":
        exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
        return Rope(tuple((1.0 / parameters["rope_theta"] ** exponents).tolist()))
    if kind not in _STATIC_ROPE:
        raise UnsupportedModelError(f"{folder}: rope type {kind!r} is not implemented")
    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return Rope(tuple(frequencies.tolist()), scaling)


def _token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)
