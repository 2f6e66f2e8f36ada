"""Loads a model onto its device, and starts a core around it."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from thothy_ai.engine.api import EngineInfo
from thothy_ai.engine.api.adapters import adapters_of
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.errors import OutOfMemoryError
from thothy_ai.engine.api.inflight_log import AdmissionFile
from thothy_ai.engine.api.options import EngineOptions, required_model
from thothy_ai.engine.checkpoint.configuration import FolderConfiguration
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.distributed.leader import Group
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype, start_triton, use_device
from thothy_ai.engine.execution.host_memory import return_freed
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.model_check.sizing import MAX_CONTEXT, plan_memory
from thothy_ai.engine.models.ranks import Ranks
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.process.progress import LoadingProgress
from thothy_ai.engine.text.tokenizer import no_tokenizer
from thothy_ai.engine.weights.loader import LoadedModel, ModelText, load_model
from thothy_ai.engine.wire.core_messages import ConfigurationRead

_YOUNG_OBJECTS = 50_000  # until a garbage collection; a step makes a few thousand and drops them


def start_core(
    loaded: LoadedModel,
    options: EngineOptions,
    on_events: OnEvents,
    record: Callable[[EngineInfo], AdmissionFile | None] = lambda _: None,
    group: Group | None = None,
) -> EngineCore:
    """Start a core around a loaded model; OutOfMemoryError, with the figures, if it does not fit.

    `record` makes the file, if any, in which the core records the requests that it has begun.
    """
    if loaded.tokenizer is None:
        raise no_tokenizer(loaded.name)
    grammars = GrammarCompiler(loaded.tokenizer, loaded.config.vocab_size, loaded.config.eos_token_ids)
    core = build_core(loaded, options, on_events, grammars, group)
    file = record(core.info())
    keep_what_is_loaded()
    core.start(file)
    try:
        for name, folder in adapters_of(options.adapters).items():
            core.load_adapter(name, str(folder)).result()
    except BaseException:
        core.stop()
        raise
    return core


def keep_what_is_loaded() -> None:
    """Exclude everything loaded so far from garbage collection, since it stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)


def load_together(options: EngineOptions, text: ModelText, group: Group) -> LoadedModel:
    """Like `load`, together with the group's other ranks, which receive the model's configuration from here."""
    with group.blaming():
        loaded = load(options, _SharedText(text, options, group), group.ranks)
    group.wait_loaded()
    return loaded


class _SharedText:
    """Implements `ModelText`, and has the other ranks load once the configuration is known."""

    def __init__(self, text: ModelText, options: EngineOptions, group: Group) -> None:
        self._text, self._options, self._group = text, options, group
        self.tokenizer = text.tokenizer

    def configuration(self, folder: Path, named: Path, /) -> FolderConfiguration:
        found = self._text.configuration(folder, named)
        self._group.load(self._options, ConfigurationRead.of(found))
        return found


def load(options: EngineOptions, text: ModelText, ranks: Ranks | None = None) -> LoadedModel:
    """Load a model onto its device, or this rank's share if there are several `ranks`. `text` reads its text files.

    ModelLoadError, or a subclass, says in one line why it cannot be loaded.
    """
    model = required_model(options)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = resolve_device(options.device)
    use_device(device)
    dtype = resolve_dtype(options.dtype, device)
    # A terminal has room for one rank's bar; the other ranks' progress is in the log.
    progress = LoadingProgress(io.StringIO() if ranks is not None and ranks.rank else sys.stderr)
    try:
        with progress.showing():
            triton = start_triton(device)
            loaded = load_model(
                model,
                device=device,
                dtype=dtype,
                weights=options.weights,
                cache_dir=options.cache_dir,
                max_context=options.max_context or MAX_CONTEXT,
                finite=options.check_weights,
                flex=options.attention == "flex",
                check=lambda config: plan_memory(config, options, device, dtype).require(model.name),
                text=text,
                on_read=progress,
                ranks=ranks,
            )
            triton.join()
            return_freed()
            return loaded
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"{model} does not fit {device}: {error}") from error
