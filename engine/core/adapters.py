"""Loads and unloads adapters while the core runs.

A separate thread reads the folder. Between two steps, the core's thread then registers the weights under their name;
before the first adapter, it makes room on the device.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from thothy_ai.engine.adapters.folder import AdaptedModel, read_adapter
from thothy_ai.engine.adapters.library import AdapterLibrary, HostAdapter
from thothy_ai.engine.api import AdapterInfo, AdapterStats
from thothy_ai.engine.api.adapters import check_adapter_name
from thothy_ai.engine.api.errors import AdapterLoadError, EngineError, EngineStoppedError, one_line
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.core.requests import Requests
from thothy_ai.engine.execution.memory import is_out_of_memory

log = logging.getLogger(__name__)


class AdapterLoading:
    """Owns the thread that reads folders. Without a `base` or without slots, every adapter is refused."""

    def __init__(
        self, library: AdapterLibrary, config: EngineConfig, base: AdaptedModel | None, requests: Requests
    ) -> None:
        self._library, self._config, self._base, self._requests = library, config, base, requests
        self._reader = ThreadPoolExecutor(1, "engine-adapters")
        self._lock = threading.Lock()
        self._open: set[Future[AdapterInfo]] = set()  # not answered yet
        self._started = False  # whether the core's thread has made room
        self._closed = False

    @property
    def infos(self) -> tuple[AdapterInfo, ...]:
        return self._library.infos

    def stats(self, slots: AdapterStats) -> AdapterStats:
        """The statistics of `slots`, completed by the library's."""
        return replace(slots, changes=self._library.changes, loaded=len(self._library.infos))

    def load(self, name: str, folder: str) -> Future[AdapterInfo]:
        loaded: Future[AdapterInfo] = Future()
        loaded.set_running_or_notify_cancel()  # a caller that gives up can no longer cancel it
        if self._base is None or not self._config.adapter_slots:
            says = "start the engine with --adapter-slots 8"
            if self._base is None:
                says = "adapters of a model that several devices share are not implemented"
            loaded.set_exception(AdapterLoadError(f"{folder}: {says}"))
            return loaded
        with self._lock:
            if self._closed:
                loaded.set_exception(EngineStoppedError("the engine has stopped"))
                return loaded
            self._open.add(loaded)
            self._reader.submit(self._load, name, Path(folder), self._base, loaded)
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
        """Refuse all open and further loads. Called when the core ends."""
        with self._lock:
            self._closed = True
            waiting = [*self._open]
        self._reader.shutdown(wait=False, cancel_futures=True)
        for loaded in waiting:
            self._settle(loaded, EngineStoppedError("the engine has stopped"))

    # ---- the reader's thread

    def _load(self, name: str, folder: Path, base: AdaptedModel, loaded: Future[AdapterInfo]) -> None:
        try:
            check_adapter_name(name)
            adapter = read_adapter(name, folder, base)
        except Exception as error:  # noqa: BLE001  only this adapter fails
            self._settle(loaded, error)
            return
        self._requests.put(partial(self._install, base, adapter, loaded))

    # ---- the core's thread

    def _install(self, base: AdaptedModel, adapter: HostAdapter, loaded: Future[AdapterInfo]) -> None:
        if self._closed:
            return
        if (failure := self._make_room(base)) is not None:
            self._settle(loaded, failure)
            torch.cuda.empty_cache()  # what the failed attempt allocated
            return
        self._requests.drop(self._library.put(adapter))
        self._settle(loaded, adapter.info)

    def _make_room(self, base: AdaptedModel) -> AdapterLoadError | None:
        """Make room on the device before the first adapter; returns the error if there is none. The engine goes on."""
        config = self._config
        if self._started:
            return None
        try:
            base.make_room(config.adapter_slots, config.adapter_rank, config.token_budget, self._library.weights)
        except Exception as error:
            room = f"for {config.adapter_slots} adapters of rank {config.adapter_rank} on the device"
            if not is_out_of_memory(error):
                log.exception("no room was made %s", room)
                return AdapterLoadError(f"no room could be made {room}: {one_line(error)}")
            fewer = f"with fewer --adapter-slots, such as {config.adapter_slots // 2}, or "
            return AdapterLoadError(
                f"no memory {room}: start the engine {fewer if config.adapter_slots > 1 else ''}with a smaller "
                f"--adapter-rank or --memory-utilization ({one_line(error)})"
            )
        self._started = True
        return None

    def _settle(self, loaded: Future[AdapterInfo], outcome: AdapterInfo | Exception) -> None:
        """Set a load's outcome, unless another thread has."""
        with self._lock:
            if loaded not in self._open:
                return
            self._open.remove(loaded)
        if isinstance(outcome, AdapterInfo):
            loaded.set_result(outcome)
        else:
            loaded.set_exception(outcome)
