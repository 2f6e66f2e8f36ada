"""An engine in one process, to compare with: the frontend in front of a resident core."""

from __future__ import annotations

from dataclasses import dataclass

from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.resident import load, start_core
from thothy_ai.engine.text.frontend import Frontend
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.text.tools import fast_tokenizer, text_tools


@dataclass(frozen=True, slots=True)
class ResidentModel:
    """Implements `RunningEngine` in this process: requests go to the frontend, and the core computes."""

    backend: Frontend
    core: EngineCore

    @property
    def failure(self) -> Exception | None:
        """The error of the step that failed."""
        return self.core.failure

    def progress(self) -> int:
        return self.core.stats().core.steps

    def wait_ended(self) -> None:
        """Block until the core's thread has ended."""
        self.core.join()

    def close(self) -> None:
        """Nothing is left of it but this process."""


def load_engine(options: EngineOptions) -> ResidentModel:
    """Load a model and start its engine in this process; ModelLoadError or a subclass says why not, in one line."""
    text = LocalText()
    loaded = load(options, text)
    cores: list[EngineCore] = []

    def make_core(on_events: OnEvents) -> EngineCore:
        cores.append(start_core(loaded, options, on_events))
        return cores[0]

    tokenizer = fast_tokenizer(text.loaded, loaded.name)
    frontend = Frontend(text_tools(tokenizer, loaded.name, loaded.config.vocab_size), make_core)
    return ResidentModel(frontend, cores[0])
