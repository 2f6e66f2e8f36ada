"""Loads and unloads adapters while the core runs.

A folder is read on a thread of its own. Between two steps, the core's thread then makes room on the device, for the
first adapter, and gives the weights their name.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from thothy_ai.engine.adapters.folder import Base, read_adapter
from thothy_ai.engine.adapters.library import AdapterLibrary
from thothy_ai.engine.api import AdapterInfo, AdapterStats
from thothy_ai.engine.api.adapters import check_adapter_name
from thothy_ai.engine.api.errors import AdapterLoadError, EngineError, EngineStoppedError, one_line
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.core.requests import Requests
from thothy_ai.engine.execution.memory import is_out_of_memory
from thothy_ai.engine.models.layers.adapted import HostWeights


class AdapterLoading:
    """Owns the thread that reads folders. Without a `base`, or slots, all are refused."""

    def __init__(self, library: AdapterLibrary, config: EngineConfig, base: Base | None, requests: Requests) -> None:
        self._library, self._config, self._base, self._requests = library, config, base, requests
        self._reader = ThreadPoolExecutor(1, "engine-adapters")
        self._started = False  # the core's thread has made room
        self._closed = False

    @property
    def infos(self) -> tuple[AdapterInfo, ...]:
        return self._library.infos

    def stats(self, slots: AdapterStats) -> AdapterStats:
        """With what the library knows."""
        return replace(slots, changes=self._library.changes, loaded=len(self._library.infos))

    def load(self, name: str, folder: str) -> Future[AdapterInfo]:
        loaded: Future[AdapterInfo] = Future()
        if self._base is None or not self._config.adapter_slots:
            says = "start the engine with --adapter-slots 8"
            if self._base is None:
                says = "adapters of a model that several devices share are not implemented"
            loaded.set_exception(AdapterLoadError(f"{folder}: {says}"))
            return loaded
        try:
            self._reader.submit(self._load, name, Path(folder), self._base, loaded)
        except RuntimeError:  # after `close`
            loaded.set_exception(EngineStoppedError("the engine has stopped"))
        return loaded

    def unload(self, name: str) -> Future[None]:
        unloaded: Future[None] = Future()
        try:
            self._requests.drop(self._library.remove(name))
        except EngineError as error:
            unloaded.set_exception(error)
        else:
            unloaded.set_result(None)
            self._requests.put(lambda: None)  # wakes the core, which publishes its statistics
        return unloaded

    def close(self) -> None:
        """Load no more. Called by the core's thread at its end, before it takes the last commands."""
        self._closed = True
        self._reader.shutdown(wait=False, cancel_futures=True)

    # ---- the reader's thread

    def _load(self, name: str, folder: Path, base: Base, loaded: Future[AdapterInfo]) -> None:
        try:
            check_adapter_name(name)
            info, weights = read_adapter(name, folder, base)
        except Exception as error:  # noqa: BLE001  it fails this adapter only
            loaded.set_exception(error)
            return
        self._requests.put(partial(self._install, base, info, weights, loaded))
        if self._closed:
            self._settle(loaded, EngineStoppedError("the engine has stopped"))

    # ---- the core's thread

    def _install(self, base: Base, info: AdapterInfo, weights: HostWeights, loaded: Future[AdapterInfo]) -> None:
        config = self._config
        if self._closed:
            self._settle(loaded, EngineStoppedError("the engine has stopped"))
            return
        try:
            if not self._started:
                base.make_room(config.adapter_slots, config.adapter_rank, config.token_budget, self._library.weights)
                self._started = True
        except (RuntimeError, torch.OutOfMemoryError) as error:
            if not is_out_of_memory(error):
                raise
            torch.cuda.empty_cache()
            says = f"no memory for {config.adapter_slots} adapters on the device: start the engine with --adapter-slots"
            self._settle(loaded, AdapterLoadError(f"{says} ({one_line(error)})"))
        else:
            self._requests.drop(self._library.put(info, weights))
            if not loaded.done():
                loaded.set_result(info)

    @staticmethod
    def _settle(loaded: Future[AdapterInfo], error: EngineError) -> None:
        if not loaded.done():
            loaded.set_exception(error)
