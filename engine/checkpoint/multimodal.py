"""Multimodal checkpoints of which this engine serves the text part: where its configuration and its tensors are.

Only architectures whose text part computes of text what one of our families does are here. Most follow Llava's
pattern: a vision tower, a projector and a language model. In Qwen-VL a token has a position on each of three axes
(M-RoPE, Wang et al., "Qwen2-VL", 2024), but these differ among images only: of text all three are the same, and the
embedding is the plain rotary one of the same frequencies. A text part that is none of our families is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_LLAVA_TEXT = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),  # as transformers saved them before 4.52
    ("language_model.lm_head.", "lm_head."),
)
_LLAVA_OTHERS = ("vision_tower.", "multi_modal_projector.", "image_newline")
_PLAIN_LAYERS = ("ignore", "ignored_layers", "modules_to_not_convert")  # in configurations of quantized weights
_IDEFICS_TEXT = (("model.text_model.", "model."),)
_IDEFICS_OTHERS = ("vision_model.", "connector.")
_QWEN_TEXT = (("model.language_model.", "model."), ("language_model.", "model."))  # or as in a model of text alone
_QWEN_OTHERS = ("visual.",)
_AXES = 3  # time, height and width


@dataclass(frozen=True, slots=True)
class Container:
    """A multimodal architecture: how its text part's tensors begin, and would without it; how its others begin.

    `family` is that of a text part with a `model_type` of its own, and `fixed` what its code does whatever its
    configuration says, as fields of the family's configuration.
    """

    about: str
    text: tuple[tuple[str, str], ...] = _LLAVA_TEXT
    others: tuple[str, ...] = _LLAVA_OTHERS
    family: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def text_name(self, name: str) -> str | None:
        """The name of a tensor in a model of text alone; None for one that is not of the text part.

        A tensor that is known as neither keeps its name, and is refused as a stray one.
        """
        if name.removeprefix("model.").startswith(self.others):
            return None
        own = next(((begin, new) for begin, new in self.text if name.startswith(begin)), ("", ""))
        return own[1] + name.removeprefix(own[0])


CONTAINERS: Mapping[str, Container] = {
    "mistral3": Container("Mistral Small 3.1 and 3.2"),
    "gemma3": Container("Gemma 3 from 4B"),
    "llava": Container("Llava 1.5, Pixtral"),
    "llava_next": Container("Llava 1.6"),
    "llava_onevision": Container("Llava-OneVision"),
    "vipllava": Container("VipLlava"),
    "internvl": Container("InternVL 3 in transformers' own form"),
    "aya_vision": Container("Aya Vision"),
    "idefics3": Container("Idefics 3", _IDEFICS_TEXT, _IDEFICS_OTHERS),
    "smolvlm": Container("SmolVLM", _IDEFICS_TEXT, _IDEFICS_OTHERS),
    "qwen2_vl": Container("Qwen2-VL", _QWEN_TEXT, _QWEN_OTHERS, "qwen2"),
    "qwen2_5_vl": Container("Qwen2.5-VL", _QWEN_TEXT, _QWEN_OTHERS, "qwen2"),
    "qwen3_vl": Container("Qwen3-VL", _QWEN_TEXT, _QWEN_OTHERS, "qwen3", {"use_sliding_window": False}),
    "qwen3_vl_moe": Container(
        "Qwen3-VL with mixtures of experts", _QWEN_TEXT, _QWEN_OTHERS, "qwen3_moe",
        {"use_sliding_window": False, "norm_topk_prob": True, "tie_word_embeddings": False},  # which the container says
    ),
}  # fmt: skip


def text_part(config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration of the text part, or `config` itself if it is of text alone.

    What a container says of all its weights counts for these too: how they are quantized, and that they may be tied.
    ValueError for sections of positions that a head does not have.
    """
    container = CONTAINERS.get(config.model_type)
    if container is None:
        return config
    text: PreTrainedConfig = config.text_config
    if container.family is not None:
        text = _as_family(text, container.family, container.fixed)
    text.tie_word_embeddings = bool(text.tie_word_embeddings or config.tie_word_embeddings)
    quantization = getattr(config, "quantization_config", None)
    if quantization is not None:
        text.quantization_config = _of_text(quantization, container)
    return text


def _as_family(text: PreTrainedConfig, family: str, fixed: Mapping[str, Any]) -> PreTrainedConfig:
    """A configuration of `family` that computes of text what `text` does."""
    from transformers import AutoConfig  # noqa: PLC0415  slow to import

    fields = {name: value for name, value in text.to_dict().items() if name != "model_type"}
    head_dim = fields.get("head_dim") or text.hidden_size // text.num_attention_heads
    rope = _on_one_axis(text.rope_parameters, head_dim // 2)
    return AutoConfig.for_model(family, **{**fields, **fixed, "rope_parameters": rope})


def _on_one_axis(rope: Mapping[str, Any], frequencies: int) -> dict[str, Any]:
    """Rotary parameters without the axes: which frequencies belong to which, and whether they take turns."""
    plain = {name: value for name, value in rope.items() if name not in {"mrope_section", "mrope_interleaved", "type"}}
    sections = rope.get("mrope_section")
    if sections is not None and not _divides(sections, frequencies):
        raise ValueError(f"mrope_section is {sections!r}, of {frequencies} frequencies")
    return plain | {"rope_type": "default"} if plain.get("rope_type") == "mrope" else plain


def _divides(sections: object, frequencies: int) -> bool:
    """Whether each axis has a number of them, and all have one."""
    if not isinstance(sections, list) or len(sections) != _AXES:
        return False
    return all(type(each) is int and each >= 0 for each in sections) and sum(sections) == frequencies


def _of_text(quantization: object, container: Container) -> object:
    """The same with the names of layers that stay plain as a model of text alone has them."""
    if not isinstance(quantization, dict):
        return quantization
    lists = {key: value for key, value in quantization.items() if key in _PLAIN_LAYERS and isinstance(value, list)}
    renamed = {key: [container.text_name(f"{name}.") for name in names] for key, names in lists.items()}  # of layers
    return quantization | {key: [name[:-1] for name in names if name is not None] for key, names in renamed.items()}


def renaming(container: str | None) -> Callable[[str], str | None]:
    """How tensors of this architecture are renamed; not at all if there is none."""
    return CONTAINERS[container].text_name if container is not None else str
