"""Multimodal checkpoints whose text part this engine serves: where its configuration and its tensors are.

For text, the text part computes the same as a text-only model: one of our families, or transformers' own. Most
architectures follow Llava's pattern: a vision tower, a projector and a language model. In Qwen-VL a token has a
position on each of three axes (M-RoPE, Wang et al., "Qwen2-VL", 2024), but these differ only in images: for text all
three are equal, and the embedding is the plain rotary one with the same frequencies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_LLAVA_TEXT = (
    ("model.language_model.", "model."),
    ("language_model.model.", "model."),  # names that transformers used before 4.52
    ("language_model.lm_head.", "lm_head."),
)
_LLAVA_OTHERS = ("vision_tower.", "image_tower.", "video_tower.", "multi_modal_projector.", "image_newline")
_PLAIN_LAYERS = ("ignore", "ignored_layers", "modules_to_not_convert")  # fields of quantization settings
_IDEFICS_TEXT = (("model.text_model.", "model."),)
_IDEFICS_OTHERS = ("vision_model.", "connector.")
_QWEN_TEXT = (("model.language_model.", "model."), ("language_model.", "model."))  # all else: as in a text-only model
_QWEN_OTHERS = ("visual.",)
_QWEN35_OTHERS = ("visual.", "mtp.")  # mtp: layers that predict further tokens
_GEMMA4_OTHERS = ("vision_tower.", "audio_tower.", "vision_embedder.", "embed_vision.", "embed_audio.")
_AXES = 3  # time, height and width
_AXES_FIELDS = {"mrope_section", "mrope_interleaved", "type"}


@dataclass(frozen=True, slots=True)
class Container:
    """A multimodal architecture.

    `text`: prefixes of its text part's tensor names, each with the prefix in a text-only model.
    `others`: prefixes of its other tensors' names.
    `family`: the family of a text part whose `model_type` has no family of its own.
    `fixed`: fields of the family's configuration that are constants in the text part's code.
    """

    about: str
    text: tuple[tuple[str, str], ...] = _LLAVA_TEXT
    others: tuple[str, ...] = _LLAVA_OTHERS
    family: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def text_name(self, name: str) -> str | None:
        """The name of a tensor in a text-only model; None if it belongs to another part.

        A tensor of no known part keeps its name, and is later refused as unknown.
        """
        if name.removeprefix("model.").startswith(self.others):
            return None
        own = next(((begin, new) for begin, new in self.text if name.startswith(begin)), ("", ""))
        return own[1] + name.removeprefix(own[0])


_NAMES_OF = {
    "nemotron_h": tuple(
        (f"{root}.{begin}", f"model.{new}")
        for root in ("backbone", "model")
        for begin, new in (("embeddings.", "embed_tokens."), ("norm_f.", "norm."), ("", ""))
    )
}
CONTAINERS: Mapping[str, Container] = {
    "mistral3": Container("Mistral Small 3.1 and 3.2, Ministral 3"),
    "gemma3": Container("Gemma 3 from 4B"),
    "gemma4": Container("Gemma 4 31B, 26B-A4B, E4B and E2B", others=_GEMMA4_OTHERS),
    "gemma4_unified": Container(
        "Gemma 4 12B", others=_GEMMA4_OTHERS, family="gemma4_text", fixed={"hidden_size_per_layer_input": 0}
    ),
    "llama4": Container("Llama 4 Scout and Maverick", others=("vision_model.", "multi_modal_projector.")),
    "llava": Container("Llava 1.5, Pixtral"),
    "llava_next": Container("Llava 1.6"),
    "llava_next_video": Container("Llava-NeXT-Video"),
    "llava_onevision": Container("Llava-OneVision"),
    "video_llava": Container("Video-Llava"),
    "vipllava": Container("VipLlava"),
    "internvl": Container("InternVL 3 in transformers' own form"),
    "aya_vision": Container("Aya Vision"),
    "cohere2_vision": Container("Command A Vision"),
    "deepseek_vl": Container("DeepSeek-VL", others=("vision_model.", "aligner.")),
    "exaone4_5": Container("EXAONE 4.5", _QWEN_TEXT, _QWEN_OTHERS),
    "idefics2": Container("Idefics 2", _IDEFICS_TEXT, _IDEFICS_OTHERS),
    "idefics3": Container("Idefics 3", _IDEFICS_TEXT, _IDEFICS_OTHERS),
    "smolvlm": Container("SmolVLM", _IDEFICS_TEXT, _IDEFICS_OTHERS),
    "qwen2_vl": Container("Qwen2-VL", _QWEN_TEXT, _QWEN_OTHERS, "qwen2"),
    "qwen2_5_vl": Container("Qwen2.5-VL", _QWEN_TEXT, _QWEN_OTHERS, "qwen2"),
    "qwen3_vl": Container("Qwen3-VL", _QWEN_TEXT, _QWEN_OTHERS, "qwen3", {"use_sliding_window": False}),
    "qwen3_vl_moe": Container(
        "Qwen3-VL with mixtures of experts", _QWEN_TEXT, _QWEN_OTHERS, "qwen3_moe",
        {"use_sliding_window": False, "norm_topk_prob": True, "tie_word_embeddings": False},  # set by the container
    ),
    "qwen3_5": Container("Qwen3.5 and Qwen3.6", _QWEN_TEXT, _QWEN35_OTHERS, "qwen3_5_text"),
    "qwen3_5_moe": Container(
        "Qwen3.5 and Qwen3.6 with mixtures of experts", _QWEN_TEXT, _QWEN35_OTHERS, "qwen3_5_moe_text"
    ),
}  # fmt: skip


def text_part(config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration of the text part, or `config` itself if the model is text-only.

    The container's settings for all weights, quantization and tying, apply to the text part as well. ValueError for
    M-RoPE sections that do not fit a head.
    """
    container = CONTAINERS.get(config.model_type)
    if container is None:
        return config
    text: PreTrainedConfig = config.text_config
    if container.family is not None:
        text = _as_family(text, container.family, container.fixed)
    text.tie_word_embeddings = bool(text.tie_word_embeddings or config.tie_word_embeddings)
    quantization = getattr(config, "quantization_config", None)
    if isinstance(quantization, dict):
        renamed = {}
        for key in _PLAIN_LAYERS:
            if isinstance(layers := quantization.get(key), list):
                names = (container.text_name(f"{name}.") for name in layers)
                renamed[key] = [name[:-1] for name in names if name is not None]
        quantization = quantization | renamed
    if quantization is not None:
        text.quantization_config = quantization
    return text


def _as_family(text: PreTrainedConfig, family: str, fixed: Mapping[str, Any]) -> PreTrainedConfig:
    """A configuration of `family`, without M-RoPE's axes, that computes the same as `text` for text."""
    from transformers import AutoConfig  # noqa: PLC0415  slow to import

    fields = {**text.to_dict(), **fixed}
    del fields["model_type"]
    if "mrope_section" not in text.rope_parameters and text.rope_parameters.get("rope_type") != "mrope":
        return AutoConfig.for_model(family, **fields)
    rope = {name: value for name, value in text.rope_parameters.items() if name not in _AXES_FIELDS}
    head_dim = fields.get("head_dim") or text.hidden_size // text.num_attention_heads
    frequencies = int(head_dim * rope.get("partial_rotary_factor", 1.0)) // 2
    sections = text.rope_parameters.get("mrope_section")
    if sections is not None:
        by_axis = isinstance(sections, list) and len(sections) == _AXES
        if not by_axis or any(type(each) is not int or each < 0 for each in sections) or sum(sections) != frequencies:
            raise ValueError(f"mrope_section is {sections!r}, of {frequencies} frequencies")
    if rope.get("rope_type") == "mrope":
        rope["rope_type"] = "default"
    return AutoConfig.for_model(family, **{**fields, "rope_parameters": rope})


def renaming(container: str | None, family: str | None = None) -> Callable[[str], str | None]:
    """The function that renames the tensors of a container, or of a family with unusual names."""
    if container is not None:
        return CONTAINERS[container].text_name
    return Container("", _NAMES_OF[family], ()).text_name if family in _NAMES_OF else str
