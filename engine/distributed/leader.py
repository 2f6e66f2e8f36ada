"""The first rank's view of the group: starts the other ranks' processes, has them load, and notices when one ends."""

from __future__ import annotations

import gc
import logging
import os
import queue
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

import torch

from thothy_ai.engine.api.errors import EngineError, InvalidRequestError, ModelLoadError
from thothy_ai.engine.api.limits import EngineConfig
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.distributed.code import CODE, device_kind
from thothy_ai.engine.distributed.process_group import JOIN_SECONDS, ProcessGroup, open_store
from thothy_ai.engine.distributed.shared_memory import FrameWriter, open_memory
from thothy_ai.engine.distributed.steps import LeadingRunner, ring_bytes
from thothy_ai.engine.execution.device import resolve_device
from thothy_ai.engine.execution.memory import is_out_of_memory
from thothy_ai.engine.execution.runner import Runner
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.child import start_child
from thothy_ai.engine.wire.core_messages import ConfigurationRead
from thothy_ai.engine.wire.rank_messages import (
    FROM_RANK,
    TO_RANK,
    FromRank,
    JoinGroup,
    LoadShare,
    RankFailed,
    RankFound,
    RankLoaded,
    RankReady,
    ToRank,
)

log = logging.getLogger(__name__)

_MODULE = "thothy_ai.engine.process.rank_process"
_FIND_SECONDS = 300.0  # for a process to import torch on a busy machine; one that ends is noticed at once
_GRACE_SECONDS = 2.0  # for the threads that work with a lost rank to fail first
_END_SECONDS = 5.0  # from the end of a process's channel to its exit, while its memory is freed
_KILLED_SECONDS = 30.0  # for a killed process to exit; a broken device can keep it forever

M = TypeVar("M", RankFound, RankLoaded, RankReady)
OnLost = Callable[[EngineError], None]


class Group:
    """The ranks of an engine with `options.tensor_parallel` devices; this process is the first.

    Create it on a thread that lives as long as the process: the kernel ends the other ranks with that thread. When a
    rank is lost, `on_lost` is called on another thread, after the threads that work with it have had time to fail.
    """

    def __init__(self, options: EngineOptions, on_lost: OnLost = lambda _: None) -> None:
        self._size = options.tensor_parallel
        self._options, self._on_lost = options, on_lost
        _refuse_adapters(options)
        self._devices = _devices(options)
        self._ending = threading.Event()  # a rank's channel has ended; its process can live on for seconds
        self._lost, self._closing = threading.Event(), threading.Event()
        self._until_ready: threading.Timer | None = None
        self.error: EngineError | None = None  # why a rank was lost
        self._leading: LeadingRunner | None = None
        self.ranks: ProcessGroup | None = None
        self._others: list[_OtherRank] = []
        try:
            store = open_store(self._size)
            for number in range(1, self._size):
                self._others.append(_OtherRank(number, self._ending, self._lose))
            for rank in self._others:
                here = store.port, str(self._devices[rank.number])
                rank.send(JoinGroup(rank.number, self._size, *here, options.threads, options.log_level))
            for rank in self._others:
                self._require_alike(rank, self._wait(rank, RankFound, _FIND_SECONDS))
            joining = self._within(JOIN_SECONDS, "joined each other")
            with self.blaming():
                self.ranks = ProcessGroup(0, self._size, self._devices[0], store)
            joining.cancel()
        except BaseException:
            self.close()
            raise

    @property
    def devices(self) -> tuple[torch.device, ...]:
        """The device of each rank."""
        return self._devices

    def load(self, options: EngineOptions, configuration: ConfigurationRead) -> None:
        """Have the other ranks load their shares of this model, in place of the one they run; returns at once."""
        if self._leading is not None:
            self._leading.end()
            self._leading = None
        for rank in self._others:
            own = replace(options, device=str(self._devices[rank.number]), token=None)
            rank.send(LoadShare(own, configuration))

    def wait_loaded(self) -> None:
        """Wait until the other ranks have loaded. ModelLoadError if that fails, or takes much longer than it did here.

        The ranks must begin to run steps within `stall_seconds` from now: call `leading`.
        """
        for rank in self._others:
            self._wait(rank, RankLoaded, self._options.stall_seconds)
        self._until_ready = self._within(self._options.stall_seconds, "become ready")

    def leading(self, runner: Runner, config: EngineConfig, vocab_size: int) -> LeadingRunner:
        """A runner of steps on all ranks; returns it once the others wait for steps."""
        capacity = ring_bytes(config, vocab_size)
        for rank in self._others:
            self._wait(rank, RankReady, self._options.stall_seconds)
        if self._until_ready is not None:
            self._until_ready.cancel()
        frames = [FrameWriter(rank.memory, capacity, rank.notices, self._raise_if_lost) for rank in self._others]
        self._leading = LeadingRunner(runner, frames, self.blaming)
        return self._leading

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Replace a RuntimeError or OSError that a lost rank causes here by that rank's error."""
        try:
            yield
        except (RuntimeError, OSError) as error:
            if is_out_of_memory(error):  # this rank's own: the step is tried again at once
                raise
            if self._ending.wait(_GRACE_SECONDS):
                self._lost.wait(2 * _END_SECONDS)
            if self.error is not None:
                raise self.error from error
            raise

    def end_others(self) -> None:
        """End the other processes, and wait until their memory is free."""
        self._closing.set()
        if self._until_ready is not None:
            self._until_ready.cancel()
        while self._others:
            self._others.pop().close()

    def close(self) -> None:
        """End the other processes and leave the group, so that this process can be the first rank of another one."""
        self.end_others()
        self._leading = None
        gc.collect()  # NCCL would wait until the runner's graphs are freed
        if self.ranks is not None:
            self.ranks.leave()
            self.ranks = None

    def _raise_if_lost(self) -> None:
        if self.error is not None:
            raise self.error

    def _require_alike(self, rank: _OtherRank, found: RankFound) -> None:
        """ModelLoadError for a rank whose code or kind of device differs from this rank's."""
        if found.code != CODE:
            raise ModelLoadError(
                f"rank {rank.number} runs different code from rank 0: was this engine's installation changed just now?"
            )
        if found.device != (own := device_kind(self._devices[0])):
            raise ModelLoadError(f"rank {rank.number} has a {found.device}, rank 0 a {own}: they must be equal")

    def _wait(self, rank: _OtherRank, kind: type[M], seconds: float) -> M:
        """The rank's next message. ModelLoadError if it does not come in time; a lost rank's error if one is lost."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._raise_if_lost()
            with suppress(queue.Empty):
                message = rank.messages.get(timeout=0.1)
                if not isinstance(message, kind):
                    raise ModelLoadError(f"rank {rank.number} said {message!r:.80} instead of a {kind.__name__}")
                return message
        doing = {RankFound: "come up", RankLoaded: "loaded its weights", RankReady: "become ready"}[kind]
        raise ModelLoadError(f"rank {rank.number} has not {doing} within {seconds:g} s")

    def _within(self, seconds: float, done: str) -> threading.Timer:
        """A timer that gives the group up unless cancelled; a thread that waits in a collective can't do so itself."""
        error = ModelLoadError(f"the ranks have not {done} within {seconds:g} s: one of them hangs")
        timer = threading.Timer(seconds, self._lose, (error,))
        timer.daemon = True
        timer.start()
        return timer

    def _lose(self, error: EngineError) -> None:
        """Give up a lost rank; called on its thread when it ends, or on a timer's thread."""
        if self._closing.is_set() or self.error is not None:
            return
        self.error = error
        self._lost.set()
        self._ending.set()
        log.critical("the group ends: %s", error)
        if not self._closing.wait(_GRACE_SECONDS):
            self._on_lost(error)


class _OtherRank:
    """The process of another rank. `memory` and `notices` carry its steps."""

    def __init__(self, number: int, ending: threading.Event, lose: OnLost) -> None:
        """`ending` is set when its channel ends; `lose` is called once the reason is known."""
        self.number = number
        self.messages: queue.SimpleQueue[FromRank] = queue.SimpleQueue()
        self.memory = open_memory()
        self.notices, theirs = socket.socketpair()
        try:
            with theirs:
                self._process, end = start_child(_MODULE, theirs.fileno(), self.memory)
        except BaseException:
            os.close(self.memory)
            self.notices.close()
            raise
        self._channel: Channel[ToRank, FromRank] = Channel(end, TO_RANK, FROM_RANK)
        threading.Thread(target=self._watch, args=(ending, lose), name=f"rank-{number}", daemon=True).start()

    def send(self, message: ToRank) -> None:
        with suppress(OSError):  # it has ended; its thread notices that
            self._channel.send(message)

    def close(self) -> None:
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILLED_SECONDS)
        self._channel.close()
        self.notices.close()
        os.close(self.memory)

    def _watch(self, ending: threading.Event, lose: OnLost) -> None:
        error: EngineError | None = None
        try:
            for message in self._channel:
                if isinstance(message, RankFailed):
                    text = f"rank {self.number}: {message.error}"
                    error = type(message.error)(text)
                    break
                self.messages.put(message)
        except EngineError as malformed:
            error = malformed
        ending.set()
        lose(error or ModelLoadError(f"rank {self.number}'s process {self._end()}"))

    def _end(self) -> str:
        """Wait for the process after its channel closed, and describe how it ended."""
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its channel"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def _refuse_adapters(options: EngineOptions) -> None:
    """InvalidRequestError for adapters: their weights can't be divided among ranks yet."""
    if options.adapters or options.adapter_slots:
        raise InvalidRequestError(
            f"adapters and --tensor-parallel {options.tensor_parallel} cannot be combined: leave out one of them"
        )


def _devices(options: EngineOptions) -> tuple[torch.device, ...]:
    """One device per rank, starting at the options' device; InvalidRequestError if there are too few."""
    first, size = resolve_device(options.device), options.tensor_parallel
    if first.type != "cuda":
        return (first,) * size
    there, begin = torch.cuda.device_count(), first.index or 0
    if begin + size > there:
        raise InvalidRequestError(f"--tensor-parallel {size} from {first} on needs {size} GPUs: torch sees {there}")
    return tuple(torch.device("cuda", begin + rank) for rank in range(size))
