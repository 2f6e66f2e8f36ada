"""A resident model: loaded, wrapped in a core, with its text edge in front, and started."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast

from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.core_api import OnEvents
from thothy_ai.engine.errors import ModelLoadError, OutOfMemoryError
from thothy_ai.engine.execution.device import resolve_device, resolve_dtype, use_device
from thothy_ai.engine.grammar import GrammarCompiler
from thothy_ai.engine.options import EngineOptions
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.process.sizing import MAX_CONTEXT, plan_memory
from thothy_ai.engine.text.frontend import Frontend, TextTools
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.token_bytes import token_bytes
from thothy_ai.engine.weights.loader import LoadedModel, load_model


@dataclass(frozen=True, slots=True)
class ResidentModel:
    """Implements `RunningEngine`: requests go to the text edge, and the core computes."""

    backend: Frontend
    core: EngineCore

    @property
    def failure(self) -> Exception | None:
        """The error of the step that failed."""
        return self.core.failure

    def progress(self) -> int:
        """Steps so far."""
        return self.core.stats().core.steps

    def wait_ended(self) -> None:
        """Block until the core's thread has ended."""
        self.core.join()


def load_engine(model: Path, options: EngineOptions) -> ResidentModel:
    """Load a model and start its engine; ModelLoadError or a subclass says why not, in one line."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = resolve_device(options.device)
    use_device(device)
    dtype = resolve_dtype(options.dtype, device)
    try:
        loaded = load_model(
            model,
            device=device,
            dtype=dtype,
            weights=options.weights,
            cache_dir=options.cache_dir,
            max_context=options.max_context or MAX_CONTEXT,
            check=lambda config: plan_memory(config, options, device, dtype).require(model.name),
        )
        return _start(loaded, options)
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"{model} does not fit {device}: {error}") from error


def text_tools(loaded: LoadedModel) -> TextTools:
    """What the frontend needs of a model; ModelLoadError without a tokenizer."""
    tokenizer = loaded.tokenizer
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelLoadError(f"{loaded.name} has no tokenizer.json, nor anything that one can be made from")
    return TextTools(
        PromptEncoder(tokenizer),
        GrammarCompiler(tokenizer, loaded.config.vocab_size, loaded.config.eos_token_ids),
        token_bytes(tokenizer.backend_tokenizer),
    )


def _start(loaded: LoadedModel, options: EngineOptions) -> ResidentModel:
    cores: list[EngineCore] = []

    def make_core(on_events: OnEvents) -> EngineCore:
        cores.append(build_core(loaded, options, on_events))
        return cores[0]

    frontend = Frontend(text_tools(loaded), make_core)
    gc.collect()
    gc.freeze()  # what was loaded stays: the collector need not traverse it again
    cores[0].start()
    return ResidentModel(frontend, cores[0])
