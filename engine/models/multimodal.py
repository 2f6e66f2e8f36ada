"""Multimodal checkpoints of which this engine serves the text part: where its configuration and its tensors are.

Only architectures whose text part computes alone what it computes among images are here, all after Llava's pattern: a
vision tower, a projector, and one of our families. A family whose positions depend on images is another architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

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


@dataclass(frozen=True, slots=True)
class Container:
    """A multimodal architecture: how its text part's tensors begin, and would without it; how its others begin."""

    about: str
    text: tuple[tuple[str, str], ...] = _LLAVA_TEXT
    others: tuple[str, ...] = _LLAVA_OTHERS

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
}


def text_part(config: PreTrainedConfig) -> PreTrainedConfig:
    """The configuration of the text part, or `config` itself if it is of text alone.

    What a container says of all its weights counts for these too: how they are quantized, and that they may be tied.
    """
    container = CONTAINERS.get(config.model_type)
    if container is None:
        return config
    text: PreTrainedConfig = config.text_config
    text.tie_word_embeddings = bool(text.tie_word_embeddings or config.tie_word_embeddings)
    quantization = getattr(config, "quantization_config", None)
    if quantization is not None:
        text.quantization_config = _of_text(quantization, container)
    return text


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
