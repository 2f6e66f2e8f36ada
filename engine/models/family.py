"""The protocol of a model family, which reads a configuration and builds its decoder from named tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from thothy_ai.engine.api.errors import ModelLoadError, UnsupportedModelError
from thothy_ai.engine.checkpoint.configuration import Configuration
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.decoder import StepDecoder
from thothy_ai.engine.models.experts import ExpertSizes
from thothy_ai.engine.models.gguf_names import GGUFNames
from thothy_ai.engine.models.shape import LatentSizes, States
from thothy_ai.kernels.paged import KVHeads
from thothy_ai.kernels.states import StateShape

Windows = tuple[int | None, ...]  # for each layer: how many tokens a query sees, itself included; None: all before it


class Architecture(Protocol):
    """How a configured model computes: as one of our families, or as transformers' own model."""

    @property
    def windows(self) -> Windows: ...

    def build(self, build: ModelBuilder) -> StepDecoder:
        """The decoder; its weights are read in the order of the layers."""
        ...


class Family(Architecture, Protocol):
    """A family as configured for one model: a frozen dataclass of the family's own settings."""

    model_type: ClassVar[str]  # in transformers
    gguf: ClassVar[GGUFNames | None]  # None: its GGUF files are refused

    @classmethod
    def read(cls, config: Configuration) -> Self:
        """Read the family's settings; UnsupportedModelError for any that would be computed incorrectly."""
        ...


@runtime_checkable
class SparseFamily(Family, Protocol):
    """A family whose layers, or some of them, are mixtures of experts."""

    @property
    def experts(self) -> ExpertSizes | None:
        """The sizes of the experts; None if the configured model has none."""
        ...


@runtime_checkable
class SizedFamily(Family, Protocol):
    """A family whose MLPs are not all as wide as `intermediate_size` says."""

    @property
    def mlp_sizes(self) -> tuple[int, ...]:
        """The inner sizes of all MLPs other than experts."""
        ...


@runtime_checkable
class UnevenFamily(Family, Protocol):
    """A family whose layers have different keys and values, or read those of others."""

    @property
    def kv_heads(self) -> tuple[KVHeads, ...]: ...

    @property
    def kv_sources(self) -> tuple[int, ...]: ...


@runtime_checkable
class LatentFamily(Family, Protocol):
    """A family all of whose layers attend to latents."""

    @property
    def latent_sizes(self) -> LatentSizes: ...


@runtime_checkable
class RecurrentFamily(Family, Protocol):
    """A family some of whose layers keep a state of each row instead of keys and values."""

    @property
    def states(self) -> States: ...


@runtime_checkable
class ChunkedFamily(Family, Protocol):
    """A family whose windows are chunks: a context is cut into parts of a size, each of which sees only itself."""

    chunked: ClassVar[bool]


def require_activation(activation: str, implemented: str) -> None:
    """UnsupportedModelError unless both are the same."""
    if activation != implemented:
        raise UnsupportedModelError(f"activation {activation!r} is not implemented")


def size_of(config: Configuration, name: str, least: int = 1) -> int:
    """The integer that the configuration gives; ModelLoadError, with its name, for anything else or below `least`."""
    value = getattr(config, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ModelLoadError(f"{name} is {value!r}")
    return value


def require_full_rotary(config: Configuration, rope: Mapping[str, Any] | None = None) -> None:
    """UnsupportedModelError if only a part of each head would rotate, which not all families in transformers support.
    `rope` is the rotary embedding of one type of layers, if types differ.
    """
    if (rope or config.rope_parameters).get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModelError("partial rotary embedding is not implemented in this family")


def require_layers(config: Configuration, windows: Windows, states: States, *, chunked: bool) -> None:
    """UnsupportedModelError for other types of layers, ModelLoadError for windows that see nothing.

    A family with states has read the types itself.
    """
    known = {"full_attention", "chunked_attention" if chunked else "sliding_attention"}
    for index, kind in enumerate(() if states else getattr(config, "layer_types", None) or ()):
        if kind not in known:
            raise unknown_layer(index, kind)
    if states and None not in states:
        raise UnsupportedModelError("a model whose layers are all recurrent is not implemented")
    if any(window is not None and window < 1 for window in windows):
        raise ModelLoadError(f"sliding_window is {config.sliding_window!r}")


def unknown_layer(index: int, kind: str) -> UnsupportedModelError:
    return UnsupportedModelError(f"layer {index} is of type {kind!r}, which is not implemented")


def layer_states(config: Configuration, recurrent: str, state: StateShape) -> States:
    """The states of layers of type `recurrent`; UnsupportedModelError for other layers that do not see everything."""
    for index, kind in enumerate(config.layer_types):
        if kind not in {recurrent, "full_attention"}:
            raise unknown_layer(index, kind)
    return tuple(state if kind == recurrent else None for kind in config.layer_types)


def same_window(config: Configuration, window: int | None = None) -> Windows:
    """The windows of a model with this one in all layers."""
    layers: int = config.num_hidden_layers
    return (window,) * layers


def layer_windows(config: Configuration) -> Windows:
    """The windows of a configuration that names each layer's type; ModelLoadError if there are windows of no size."""
    if config.sliding_window is None and "sliding_attention" in config.layer_types:
        raise ModelLoadError("layer_types names layers with a sliding window, and there is no sliding_window")
    return tuple(config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types)
