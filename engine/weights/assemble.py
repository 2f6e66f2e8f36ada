"""Assembles models: a `ModelConfig` from a folder's configuration, and a `Model` from that and named tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.checkpoint.configuration import (
    FolderConfiguration,
    read_configuration,
    transformers_configuration,
    unusable,
)
from thothy_ai.engine.checkpoint.multimodal import CONTAINERS, text_part
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.decoder import Decoder
from thothy_ai.engine.models.fallback import ThroughTransformers
from thothy_ai.engine.models.layers.linear import LinearFormat
from thothy_ai.engine.models.model import Model
from thothy_ai.engine.models.rank_sums import sums_in_norms
from thothy_ai.engine.models.ranks import Ranks
from thothy_ai.engine.models.tensors import TensorSource
from thothy_ai.engine.weights.formats import plain
from thothy_ai.kernels.operations import Operations, operations_for


def model_config(folder: Path, named: Path | None = None) -> ModelConfig:
    """The configuration of a Hugging Face folder's model.

    ModelLoadError and UnsupportedModelError name `named`, the file that the folder was converted from, or the folder.
    """
    return configured(read_configuration(folder, named), folder, named)


def configured(read: FolderConfiguration, folder: Path, named: Path | None = None) -> ModelConfig:
    """As `model_config`, from the result of `read_configuration` on the folder.

    An architecture without a family here runs through transformers' model.
    """
    where = named or folder
    family = FAMILIES.get(read.text.model_type)
    try:
        if family is None:
            through = ThroughTransformers.read(text_part(transformers_configuration(folder)), read.container)
            return through.model_config(read.eos_token_ids)
        config = replace(ModelConfig.of(read.text, family, read.eos_token_ids), container=read.container)
        if read.container is None or config.quantization is None:
            return config
        prefixes = CONTAINERS[read.container].text
        return replace(config, quantization=replace(config.quantization, prefixes=prefixes))
    except EngineError as error:
        raise type(error)(f"{where}: {error}") from error
    except Exception as error:  # families compute with whatever values the file has
        raise unusable(where, error) from error


def assemble(
    config: ModelConfig,
    source: TensorSource,
    weight_format: Callable[[Operations], LinearFormat] = plain,
    *,
    flex: bool = False,
    ranks: Ranks | None = None,
) -> Model:
    """The model of `config` with the source's weights, in `weight_format` unless they are stored packed. With `flex`,
    or if no other kernel computes its attention, that is torch's FlexAttention.

    With `ranks`, one rank's share and its configuration. UnsupportedModelError if the model can't be divided.
    """
    own = config if ranks is None else config.shared_by(ranks.size)
    if config.quantization is not None:
        source = config.quantization.over(source)
    operations = operations_for(source.device, flex=flex or config.needs_flex)
    builder = ModelBuilder(config, source, operations, weight_format(operations), ranks)
    decoder = config.architecture.build(builder)
    if ranks is not None and isinstance(decoder, Decoder):
        decoder = sums_in_norms(decoder, ranks)
    return Model(own, decoder, builder.num_bytes, operations, builder.adapters)
