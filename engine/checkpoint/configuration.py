"""A folder's config.json with the defaults of transformers, as plain values.

transformers knows every architecture's defaults and the older names of its fields, and takes two seconds to import. The
frontend's process reads the configuration with it; the core's process imports torch meanwhile and receives the result.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from thothy_ai.engine.api.errors import EngineError, ModelLoadError, UnsupportedModelError, one_line
from thothy_ai.engine.checkpoint.multimodal import CONTAINERS, text_part
from thothy_ai.engine.checkpoint.rope_fields import require_one_rope

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

# The `model_type` of each architecture that the engine implements, listed here to be known without torch. All others in
# transformers run through its own models, more slowly (`engine.models.fallback`).
FAMILIES: Final = (
    "llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "granite", "smollm3", "olmo2", "glm", "glm4",
    "cohere", "cohere2", "seed_oss", "qwen3_moe", "mixtral", "glm4_moe", "gpt_oss", "qwen3_next",
    "qwen3_5_text", "qwen3_5_moe_text", "granitemoehybrid", "lfm2", "olmo3",
    "ministral3", "gemma4_text", "falcon_h1", "nemotron_h", "llama4_text",
    "deepseek_v2", "deepseek_v3", "glm4_moe_lite",
)  # fmt: skip
_MAX_LAYERS = 1024
_TENSOR_TYPES = {"dtype", "torch_dtype"}  # strings, or torch's types if it is imported
_LETTERS = "M*-E"  # types of layers in a hybrid_override_pattern
_PLAIN = (str, int, float, bool, type(None))


class Configuration(SimpleNamespace):
    """The fields of a configuration, under every name that its architecture has for them.

    Values are plain JSON; the type of tensors is left out. An architecture that runs through transformers' own model,
    which reads the configuration itself, has only `model_type` and `vocab_size` here.
    """

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  any value in the file
        raise AttributeError(f"the configuration has no {name!r}")


@dataclass(frozen=True, slots=True)
class FolderConfiguration:
    """The configuration of a folder's text part.

    `container` is the multimodal architecture around it, if any. `eos_token_ids` end a generation. They come only from
    config.json and generation_config.json: in many vocabularies, the defaults of transformers' classes are ordinary
    tokens.
    """

    text: Configuration
    container: str | None
    eos_token_ids: tuple[int, ...]


def read_configuration(folder: Path, named: Path | None = None) -> FolderConfiguration:
    """Read a folder's configurations through transformers.

    ModelLoadError and UnsupportedModelError name the file `named` that the folder was made from, or else the folder.
    """
    where = named or folder
    content = _content(folder, where)
    model_type: str = content["model_type"]
    if model_type not in CONTAINERS:
        from transformers import CONFIG_MAPPING  # noqa: PLC0415  slow to import

        if model_type not in {*FAMILIES, *CONFIG_MAPPING.keys()}:
            raise UnsupportedModelError(
                f"{where}: architecture {model_type!r} is not implemented "
                f"(known: {', '.join((*FAMILIES, *CONTAINERS))})"
            )
    try:
        config = transformers_configuration(folder)
        text = text_part(config)
        container = None if text is config else model_type
        plain = Configuration(model_type=text.model_type, vocab_size=getattr(text, "vocab_size", None))
        if text.model_type in FAMILIES:
            plain = _plain(text)
        said = [part.get("eos_token_id") for part in (content, content.get("text_config") or {})]
        ends = tuple(token for each in said for token in token_ids(each))
        if (folder / "generation_config.json").is_file():
            from transformers import GenerationConfig  # noqa: PLC0415  slow to import

            ends += token_ids(GenerationConfig.from_pretrained(folder, local_files_only=True).eos_token_id)
        return FolderConfiguration(plain, container, tuple(dict.fromkeys(ends)))
    except EngineError:
        raise
    except Exception as error:  # transformers computes with unchecked values of the file
        _require_layer_types(content, where)
        raise unusable(where, error) from error


def _require_layer_types(content: Mapping[str, Any], where: Path) -> None:
    """UnsupportedModelError, with the index, for a layer type unknown to transformers, whose own error has no index."""
    from transformers.configuration_utils import ALLOWED_LAYER_TYPES, remap_legacy_layer_types  # noqa: PLC0415  slow

    for part in (content, content.get("text_config") or {}):
        kinds = part.get("layer_types") or part.get("layers_block_type") or part.get("hybrid_override_pattern")
        known = _LETTERS if isinstance(kinds, str) else ALLOWED_LAYER_TYPES
        for index, kind in enumerate(kinds if isinstance(kinds, list | str) else ()):
            if remap_legacy_layer_types([str(kind)])[0] not in known:
                raise UnsupportedModelError(f"{where}: layer {index} is of type {kind!r}, which is not implemented")


def transformers_configuration(folder: Path) -> PreTrainedConfig:
    from transformers import AutoConfig  # noqa: PLC0415  slow to import

    config: PreTrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True)
    return config


def unusable(where: Path, error: Exception) -> ModelLoadError:
    """The error for a configuration with whose values a computation raised `error`."""
    return ModelLoadError(f"{where}: config.json can't be used: {one_line(error)}")


def token_ids(value: object) -> tuple[int, ...]:
    """None, a number or a list of them, as a tuple; ValueError for anything else."""
    values = () if value is None else tuple(value) if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in values):
        raise ValueError(f"eos_token_id is {value!r}")
    return tuple(each for each in values if isinstance(each, int))


def _content(folder: Path, where: Path) -> dict[str, Any]:
    """The contents of config.json, checked to have a model type and plausible numbers of layers."""
    path = folder / "config.json"
    if not folder.exists():
        raise ModelLoadError(f"{where}: no such folder")
    if not path.is_file():
        raise ModelLoadError(f"{where}: not a Hugging Face model folder (no config.json)")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        content["model_type"], parts = str(content["model_type"]), (content, content.get("text_config") or {})
        counts = [part.get("num_hidden_layers", 1) for part in parts]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelLoadError(f"{path}: not a model configuration: {one_line(error)}") from error
    for layers in counts:
        if isinstance(layers, int | float) and not 1 <= layers <= _MAX_LAYERS:  # transformers makes a list this long
            raise ModelLoadError(f"{where}: num_hidden_layers is {layers}")
    try:
        for part in parts:
            require_one_rope(part)
    except ModelLoadError as error:
        raise ModelLoadError(f"{where}: {error}") from error
    return content


def _plain(config: PreTrainedConfig) -> Configuration:
    """The plain values, under the names that newer files use."""
    if getattr(config, "rope_parameters", None) is not None:
        config.standardize_rope_params()
    held = vars(config)
    others = {"model_type", "num_hidden_layers", *config.attribute_map} - held.keys()
    values = {**held, **{name: getattr(config, name) for name in others if hasattr(config, name)}}
    if config.is_heterogeneous:  # layers have different fields, which are no attributes of `config` then
        values["per_layer_config"] = config.to_dict()["per_layer_config"]
    plain = {name: value for name, value in values.items() if name not in _TENSOR_TYPES and _is_plain(value)}
    return Configuration(**json.loads(json.dumps(plain)))


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) for key in value) and all(map(_is_plain, value.values()))
    return isinstance(value, _PLAIN)
