"""`ModelConfig`: a decoder's shape, made once from a Hugging Face folder's configuration.

What this engine would compute wrongly is refused here, by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from thothy_ai.engine.api.errors import EngineError, ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import (
    Configuration,
    FolderConfiguration,
    read_configuration,
    token_ids,
    transformers_configuration,
    unusable,
)
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.models.experts import ExpertSizes
from thothy_ai.engine.models.fallback import ThroughTransformers
from thothy_ai.engine.models.family import Architecture, SparseFamily, require_windows
from thothy_ai.engine.models.quantized.config import quantization_of
from thothy_ai.engine.models.quantized.layout import Quantization
from thothy_ai.engine.models.rope import Rope, extended_context, read_ropes

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_OPTIONAL = {"num_key_value_heads", "head_dim"}
_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
          "max_position_embeddings", *sorted(_OPTIONAL))  # fmt: skip
_EPS = ("rms_norm_eps", "layer_norm_eps", "norm_eps", "layer_norm_epsilon")  # a configuration has one of them


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A decoder's shape, and what its family reads beyond that.

    `rope` is that of most layers; `local_rope` that of layers with a sliding window, where it is another.
    """

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
    architecture: Architecture
    tied_embeddings: bool
    max_context: int
    eos_token_ids: tuple[int, ...]
    local_rope: Rope | None = None
    quantization: Quantization | None = None
    experts: ExpertSizes | None = None
    num_unused_layers: int = 0  # after the last one: they predict further tokens
    container: str | None = None  # the multimodal architecture that this is the text part of

    @classmethod
    def from_folder(cls, folder: Path, named: Path | None = None) -> ModelConfig:
        """Read `folder`/config.json; ModelLoadError, or UnsupportedModelError naming what is not implemented.

        Errors name `named`, the file that the folder was made of, instead of the folder.
        """
        return cls.of(read_configuration(folder, named), folder, named)

    @classmethod
    def of(cls, read: FolderConfiguration, folder: Path, named: Path | None = None) -> ModelConfig:
        """From what `read_configuration` found in the folder, with the same errors."""
        where = named or folder
        try:
            if read.text.model_type not in FAMILIES:
                return cls._through_transformers(where, transformers_configuration(folder), read.eos_token_ids)
            return replace(cls._from_config(where, read.text, read.eos_token_ids), container=read.container)
        except EngineError:
            raise
        except Exception as error:  # families compute with whatever values the file has
            raise unusable(where, error) from error

    @property
    def active_inner(self) -> int:
        """The inner sizes of the MLPs that a token goes through, added up over all layers."""
        if self.experts is None:
            return self.num_layers * self.intermediate_size
        dense = (self.num_layers - self.experts.layers) * self.intermediate_size
        return dense + self.experts.layers * self.experts.active_inner

    @property
    def unused(self) -> tuple[str, ...]:
        """What the names of tensors begin with that checkpoints have and that nothing here reads."""
        return tuple(f"model.layers.{self.num_layers + index}." for index in range(self.num_unused_layers))

    @property
    def widest_inner(self) -> int:
        """The inner size of the layer in which it is largest, for all experts that a token goes to."""
        active = 0 if self.experts is None else self.experts.active_inner
        dense = self.experts is None or self.experts.layers < self.num_layers
        return max(active, self.intermediate_size * dense)

    def within(self, context: int | None) -> ModelConfig:
        """The same with a context of at most so many tokens, and the rotary frequencies for that."""
        served = self.max_context if context is None else min(self.max_context, context)
        local = None if self.local_rope is None else self.local_rope.within(served)
        return replace(self, max_context=served, rope=self.rope.within(served), local_rope=local)

    @property
    def window(self) -> int | None:
        """How many tokens a query sees at most, itself included, in whichever layer; None: all before it."""
        seen = [self.max_context if window is None else window for window in self.architecture.windows]
        return max(seen) if max(seen) < self.max_context else None

    def ending_with(self, where: Path, token_id: int | None) -> ModelConfig:
        """The same, with the tokenizer's end-of-text token too; ModelLoadError if the vocabulary has none at all."""
        named = (*self.eos_token_ids, *token_ids(token_id))
        ends = tuple(dict.fromkeys(each for each in named if 0 <= each < self.vocab_size))
        if not ends:
            raise ModelLoadError(
                f"{where}: no end-of-text token is known: config.json, generation_config.json and the tokenizer name "
                f"{', '.join(map(str, named)) or 'none'}, and the vocabulary has {self.vocab_size} tokens"
            )
        return replace(self, eos_token_ids=ends)

    @classmethod
    def _from_config(cls, folder: Path, config: Configuration, eos_token_ids: tuple[int, ...]) -> ModelConfig:
        _require_positive(folder, config)
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        if heads % kv_heads or head_dim % 2:
            raise ModelLoadError(f"{folder}: {heads} heads over {kv_heads} KV heads of {head_dim} do not divide")
        try:
            quantization = quantization_of(config)
            architecture = FAMILIES[config.model_type].read(config)
            require_windows(config, architecture.windows)
            rope, local_rope = read_ropes(config, head_dim)
        except (UnsupportedModelError, ModelLoadError) as error:
            raise type(error)(f"{folder}: {error}") from None
        reach = extended_context(config)
        return cls(
            family=config.model_type,
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_layers=config.num_hidden_layers,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            norm_eps=_norm_eps(folder, config),
            rope=rope,
            architecture=architecture,
            tied_embeddings=config.tie_word_embeddings,
            max_context=reach,
            eos_token_ids=eos_token_ids,
            local_rope=local_rope,
            quantization=quantization,
            experts=architecture.experts if isinstance(architecture, SparseFamily) else None,
            num_unused_layers=int(getattr(config, "num_mtp_layers", 0) or 0),
        ).within(None)

    @classmethod
    def _through_transformers(
        cls, folder: Path, config: PreTrainedConfig, eos_token_ids: tuple[int, ...]
    ) -> ModelConfig:
        """Of an architecture without a family here. Heads are those that its attention modules have."""
        try:
            architecture = ThroughTransformers.read(config)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{folder}: {error}") from None
        return cls(
            family=config.model_type,
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=architecture.inner_size,
            num_layers=len(architecture.layers),
            num_heads=architecture.layers[0].num_heads,
            num_kv_heads=architecture.layers[0].num_kv_heads,
            head_dim=architecture.width,
            norm_eps=0.0,  # transformers' layers have theirs, and rotary embedding too
            rope=Rope(()),
            architecture=architecture,
            tied_embeddings=False,  # as far as weights are concerned: transformers shares them
            max_context=architecture.max_context,
            eos_token_ids=eos_token_ids,
        )


def _require_positive(where: Path, config: Configuration) -> None:
    for name in _SIZES:
        value = getattr(config, name, None)
        if value is None and name in _OPTIONAL:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelLoadError(f"{where}: {name} is {value!r}")


def _norm_eps(where: Path, config: Configuration) -> float:
    name = next(name for name in _EPS if hasattr(config, name))
    eps = getattr(config, name)
    if not isinstance(eps, float) or not 0 < eps < 1:
        raise ModelLoadError(f"{where}: {name} is {eps!r}")
    return eps
