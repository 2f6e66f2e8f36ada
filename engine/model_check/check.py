"""Checks a folder or a GGUF file part by part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from thothy_ai.engine.api.errors import EngineError, ModelLoadError
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.model_check.checkpoint import Checkpoint, FolderCheckpoint, GGUFCheckpoint
from thothy_ai.engine.model_check.memory import Target, memory_report
from thothy_ai.engine.model_check.report import ModelReport, Problem
from thothy_ai.engine.model_check.text import text_report
from thothy_ai.engine.models import FAMILIES
from thothy_ai.engine.models.config import ModelConfig
from thothy_ai.engine.weights.assemble import model_config
from thothy_ai.engine.weights.formats import keeps_packed
from thothy_ai.engine.weights.huggingface import OnRead
from thothy_ai.engine.weights.inventory import num_parameters


def check_model(
    path: Path,
    options: EngineOptions,
    *,
    memory: int | None = None,
    values: bool = False,
    on_read: OnRead = lambda _done, _of: None,
) -> ModelReport:
    """The report for an engine with these options on this machine's device, or on an absent GPU of `memory` bytes.

    With `values`, all weights are read and searched for NaN and infinity; `on_read` receives the progress.
    ModelLoadError if `path` does not exist, InvalidRequestError for a device or a type that does not exist.
    """
    if not path.exists():
        raise ModelLoadError(f"{path}: no such file or folder")
    check = _Check(path, options, Target.of(options, memory))
    check.all_parts()
    if values:
        check.values(on_read)
    return check.report


class _Check:
    """Collects its findings in `report`."""

    def __init__(self, path: Path, options: EngineOptions, target: Target) -> None:
        self._path, self._options, self._target = path, options, target
        packed = keeps_packed(options.weights)
        self._checkpoint: Checkpoint = FolderCheckpoint(path) if path.is_dir() else GGUFCheckpoint(path, packed=packed)
        self.report = ModelReport(str(path), self._checkpoint.form)

    def all_parts(self) -> None:
        """Check everything but values. A problem in one part hides problems only in parts that depend on it."""
        with self._part("configuration"), self._checkpoint.folder() as folder:
            with self._part("weights"):
                self._found(stored=self._checkpoint.stored(), files=self._checkpoint.files)
            config = self._configuration(folder)
            with self._part("tokenizer"):
                self._found(text=text_report(folder, self._path, config))
            if config is not None:
                with self._part("memory"):
                    report, plan = memory_report(config, self._options, self._target)
                    self._found(memory=report)
                    plan.require(self._path.name)

    def _configuration(self, folder: Path) -> ModelConfig | None:
        """The configuration that fits the weights; None if it is refused."""
        config = None
        with self._part("configuration"):
            config = model_config(folder, named=self._path).within(self._options.max_context)
            with self._part("weights"):
                config = self._checkpoint.fitting(config)
            self._found(
                family=config.family,
                through_transformers=config.family not in FAMILIES,
                container=config.container,
                parameters=num_parameters(config),
                layers=config.stored_layers,
                context=config.max_context,
                rope=self._checkpoint.rope(folder),
            )
        return config

    def values(self, on_read: OnRead) -> None:
        with self._part("weights"):
            for problem in self._checkpoint.not_finite(on_read):
                self._problem("weights", problem)
            self._found(values_checked=True)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        try:
            yield
        except EngineError as error:
            self._problem(name, str(error))

    def _problem(self, part: str, says: str) -> None:
        if all(problem.says != says for problem in self.report.problems):
            self._found(problems=(*self.report.problems, Problem(part, says)))

    def _found(self, **values: Any) -> None:  # noqa: ANN401  of any field
        self.report = replace(self.report, **values)
