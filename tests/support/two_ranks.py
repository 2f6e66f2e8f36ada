"""Processes with gloo, which stand for GPUs: two, unless asked otherwise. They start once and load many models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.patience import PATIENCE
from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.core.loop import EngineCore
from thothy_ai.engine.distributed.leader import Group
from thothy_ai.engine.grammar.compiler import GrammarCompiler
from thothy_ai.engine.process.build import build_core
from thothy_ai.engine.process.resident import load_together
from thothy_ai.engine.text.model_text import LocalText
from thothy_ai.engine.weights.loader import LoadedModel

START = EngineOptions(url="", device="cpu", threads=1, tensor_parallel=2, stall_seconds=PATIENCE)


@contextmanager
def two_ranks(options: EngineOptions = START) -> Iterator[Group]:
    """This process is the first rank."""
    group = Group(options)
    try:
        yield group
    finally:
        group.close()


@dataclass(frozen=True)
class SharedModel:
    """A model that all ranks load anew for each core, on the devices and in the type of `start`."""

    group: Group
    folder: Path
    start: EngineOptions = START

    def load(self, options: EngineOptions = START) -> LoadedModel:
        return load_together(self._options(options), LocalText(), self.group)

    def build(
        self,
        _: LoadedModel,
        options: EngineOptions,
        on_events: OnEvents,
        grammars: GrammarCompiler | None = None,
    ) -> EngineCore:
        """As `build_core`, over all ranks."""
        return build_core(self.load(options), self._options(options), on_events, grammars, self.group)

    def _options(self, options: EngineOptions) -> EngineOptions:
        start = self.start
        ranks = start.tensor_parallel
        return replace(options, model=self.folder, device=start.device, dtype=start.dtype, tensor_parallel=ranks)
