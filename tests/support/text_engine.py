"""The frontend over a core of a small random model, each of whose tokens is a character."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from transformers import PreTrainedTokenizerFast

from tests.support.hold import Hold
from tests.support.patience import PATIENCE
from thothy_ai.engine.api import Delta, EngineStats, GenerationRequest, GenerationResult
from thothy_ai.engine.api.backend import Failure, Output
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.text.frontend import Frontend, TextTools
from thothy_ai.engine.text.prompts import PromptEncoder
from thothy_ai.engine.text.token_bytes import TokenBytes
from thothy_ai.engine.weights.loader import LoadedModel


class TextEngine:
    """A frontend, and what it says."""

    def __init__(self, frontend: Frontend) -> None:
        self.frontend = frontend
        self._heard: queue.SimpleQueue[list[Output]] = queue.SimpleQueue()

    def submit(self, request: GenerationRequest) -> None:
        self.frontend.submit(request, self._heard.put)

    def run(self, requests: Sequence[GenerationRequest]) -> dict[str, GenerationResult | Failure]:
        """The ends of all, which are submitted together."""
        for request in requests:
            self.submit(request)
        ends, _ = self.listen({request.id for request in requests})
        return ends

    def listen(self, ids: set[str]) -> tuple[dict[str, GenerationResult | Failure], list[Delta]]:
        """Their ends, and the deltas before them."""
        ends: dict[str, GenerationResult | Failure] = {}
        deltas: list[Delta] = []
        while ends.keys() < ids:
            for output in self._heard.get(timeout=PATIENCE):
                if isinstance(output, Delta):
                    assert output.id not in ends
                    deltas.append(output)
                else:
                    assert output.id not in ends
                    ends[output.id] = output
        return ends, deltas

    def heard(self) -> list[Output]:
        """The next outputs."""
        return self._heard.get(timeout=PATIENCE)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """What is asked in the block reaches the core at its end, together."""
        opened = threading.Event()
        self.frontend._put_behind(lambda: opened.wait(PATIENCE) and None)
        try:
            yield
        finally:
            opened.set()

    def settle(self) -> None:
        """Wait until the core has all that was asked for."""
        done = threading.Event()
        self.frontend._put_behind(partial(self.frontend._outputs.put, done.set))
        assert done.wait(PATIENCE)

    def stats(self) -> EngineStats:
        return self.frontend.stats()


@contextmanager
def text_engine(
    loaded: LoadedModel, options: EngineOptions, tokenizer: PreTrainedTokenizerFast, hold: Hold | None = None
) -> Iterator[TextEngine]:
    """It runs until the block ends; with a `hold`, it first waits there."""
    cores: list[EngineCore] = []
    letters = TokenBytes(
        tuple(chr(0x4E00 + token).encode() for token in range(loaded.config.vocab_size)), drops_first_space=False
    )

    def make_core(on_events: OnEvents) -> EngineCore:
        cores.append(build_core(loaded, options, hold.over(on_events) if hold else on_events))
        return cores[0]

    frontend = Frontend(TextTools(PromptEncoder(tokenizer), letters), make_core)
    cores[0].start()
    try:
        yield TextEngine(frontend)
    finally:
        frontend.stop()
        assert cores[0].join(PATIENCE)
