"""From named tensors to a `Model`."""

from __future__ import annotations

from collections.abc import Callable

from thothy_ai.engine.models.builder import ModelBuilder
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.models.decoder import Model
from thothy_ai.engine.models.layers.linear import LinearFormat
from thothy_ai.engine.models.tensors import TensorSource
from thothy_ai.engine.weights.formats import plain
from thothy_ai.kernels.operations import Operations, operations_for


def assemble(
    config: ModelConfig, source: TensorSource, weight_format: Callable[[Operations], LinearFormat] = plain
) -> Model:
    """The model of `config` with the source's weights, in `weight_format` unless they come packed."""
    if config.quantization is not None:
        source = config.quantization.over(source)
    operations = operations_for(source.device)
    build = ModelBuilder(config, source, operations, weight_format(operations))
    decoder = config.architecture.build(build)
    return Model(config, decoder, build.num_bytes, operations)
