"""transformers' models: without storage, with a folder's weights, or with random ones."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from thothy_ai.engine.api.errors import ModelLoadError, OutOfMemoryError, one_line
from thothy_ai.engine.checkpoint.multimodal import CONTAINERS
from thothy_ai.engine.models.fallback.by_hand import through_interface
from thothy_ai.engine.models.fallback.refusals import model_class

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_Report = Mapping[str, Collection[object]]
_SHOWN = 3  # names of tensors in an error


def made_on(device: torch.device, config: PreTrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """A model with random weights as transformers draws them; on the meta device, one without storage."""
    with device, _quiet():
        model = model_class(config)._from_config(copy.deepcopy(config), dtype=dtype)
    return _ready(model)


def loaded_from(
    folder: Path, device: torch.device, config: PreTrainedConfig, dtype: torch.dtype, container: str | None = None
) -> PreTrainedModel:
    """The folder's model, its tensors named and converted as transformers does; or the text part of a `container`.

    ModelLoadError unless the folder has exactly the weights of the configuration.
    """
    try:
        of_text, prefix = None if container is None else CONTAINERS[container], model_class(config).base_model_prefix
        named = {} if of_text is None else {f"^{re.escape(old)}": new for old, new in of_text.text}
        with _quiet():
            loaded: Any = model_class(config).from_pretrained(
                folder,
                config=copy.deepcopy(config),
                dtype=dtype,
                output_loading_info=True,
                local_files_only=True,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are reported, with names
                key_mapping={old: f"{prefix}." if new == "model." else new for old, new in named.items()},
            )
        model, report = cast("tuple[PreTrainedModel, _Report]", loaded)
        if of_text is not None:
            of_text_alone = [name for name in report["unexpected_keys"] if of_text.text_name(str(name)) is not None]
            report = {**report, "unexpected_keys": of_text_alone}
        _require_exact(report)
        nn.Module.to(model, device)
        return _ready(model)
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"{folder}: the weights do not fit {device}") from error
    except Exception as error:  # models raise whatever they like
        raise ModelLoadError(f"{folder}: transformers can't load it: {one_line(error)}") from error


def _require_exact(report: _Report) -> None:
    for problem in ("missing_keys", "mismatched_keys", "unexpected_keys", "error_msgs"):
        if names := sorted(map(str, report.get(problem, ()))):
            raise ModelLoadError(f"{problem.replace('_', ' ')}: {', '.join(names[:_SHOWN])} ({len(names)} in all)")


def _ready(model: PreTrainedModel) -> PreTrainedModel:
    model.eval()
    model.requires_grad_(requires_grad=False)
    through_interface(model)
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' progress bars and advice."""
    from transformers.utils import logging  # noqa: PLC0415  slow to import

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
