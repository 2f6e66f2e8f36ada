"""An engine whose core runs in a separate process; this process has the frontend, and neither weights nor torch.

The core's process loads the weights. This process reads the model's configuration and tokenizer, and sends the core
what it needs of them. Errors in loading are reported by the core's process and raised here.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from thothy_ai.engine.api.core import OnEvents
from thothy_ai.engine.api.errors import EngineError, ModelLoadError, as_engine_error
from thothy_ai.engine.api.inflight_log import TEXT, AdmissionFile, admissions_in
from thothy_ai.engine.api.options import EngineOptions, required_model
from thothy_ai.engine.process.imports import transformers_without_torch
from thothy_ai.engine.process.remote_core import RemoteCore
from thothy_ai.engine.serving.address import admissions_at
from thothy_ai.engine.text.frontend import Frontend, TextTools
from thothy_ai.engine.text.model_text import LocalText, json_tokens
from thothy_ai.engine.text.tools import fast_tokenizer, text_tools
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.child import start_child
from thothy_ai.engine.wire.core_messages import (
    FROM_CORE,
    TO_CORE,
    ConfigurationRead,
    CoreReady,
    CoreRefused,
    FolderFound,
    FromCore,
    JsonTokensRead,
    LoadModel,
    TextRead,
    ToCore,
    TokenizerRead,
)

_MODULE = "thothy_ai.engine.process.core_process"
_END_SECONDS = 10.0  # from a process's stop, or the end of its channel, to its exit

T = TypeVar("T")
M = TypeVar("M", CoreReady, FolderFound)


class RemoteEngine:
    """Implements `RunningEngine` over a core's process."""

    def __init__(self, process: CoreProcess, tools: TextTools, ready: CoreReady) -> None:
        info = ready.info
        self._process = process
        self._path = admissions_at(process.url)
        file = AdmissionFile.open(self._path, info.session_id, writes=True) if self._path is not None else None
        cores: list[RemoteCore] = []

        def make_core(on_events: OnEvents) -> RemoteCore:
            cores.append(RemoteCore(process.channel, info, on_events, process.describe_end, file, ready.adapters))
            return cores[0]

        self.backend = Frontend(tools, make_core, admissions_in(file, TEXT))
        self._core = cores[0]

    @property
    def failure(self) -> Exception | None:
        """The error of the failed step, or a description of how the core's process ended."""
        return self._core.failure

    def progress(self) -> int:
        return self._core.stats().core.steps

    def wait_ended(self) -> None:
        """Block until the core or its process has ended."""
        self._core.join()

    def close(self) -> None:
        """End the core's process, and wait until its memory is free."""
        self._process.close()
        AdmissionFile.remove(self._path, self._core.info().session_id)


def start_remote(options: EngineOptions) -> RemoteEngine:
    """Start a process, load a model there and serve it; EngineError, in one line, if it cannot be loaded.

    Call it on a thread that lives as long as this process: the kernel ends the other process with that thread.
    """
    model = required_model(options)
    process = CoreProcess(options)
    try:
        with transformers_without_torch():  # imported while the other process imports torch
            is_folder = False
            with suppress(OSError):  # the core reports why it can't be read
                is_folder = model.is_dir()
            folder = model if is_folder else process.expect(FolderFound).path
            text = LocalText()
            configuration = _outcome(lambda: text.configuration(folder, model))
            process.send(ConfigurationRead, lambda: ConfigurationRead.of(configuration.result()))
            process.send(TokenizerRead, lambda: TokenizerRead.of(text.tokenizer(folder)))
            name = folder.resolve().name
            tools = _outcome(
                lambda: text_tools(fast_tokenizer(text.loaded, name), name, configuration.result().text.vocab_size)
            )
        process.send(
            JsonTokensRead,
            lambda: JsonTokensRead.of(json_tokens(tools.result().vocabulary, configuration.result())),
        )
        ready = process.expect(CoreReady)  # the core's errors take precedence over those of the text tools
        return RemoteEngine(process, tools.result(), ready)
    except BaseException:
        process.close()
        raise


def _outcome(make: Callable[[], T]) -> Future[T]:
    """Call `make`; the future has its result, or the EngineError or OSError that it raised."""
    made: Future[T] = Future()
    try:
        made.set_result(make())
    except (EngineError, OSError) as error:
        made.set_exception(error)
    return made


class CoreProcess:
    """The core's process, from its start to its end."""

    def __init__(self, options: EngineOptions) -> None:
        self.url = options.url
        self._popen, ours = start_child(_MODULE)
        self.channel: Channel[ToCore, FromCore] = Channel(ours, TO_CORE, FROM_CORE)
        self._messages = iter(self.channel)
        self.channel.send(LoadModel(replace(options, token=None)))

    def send(self, kind: type[TextRead], read: Callable[[], TextRead]) -> None:
        """Send the result of `read`, or a `kind` with the error that it raised."""
        try:
            message = read()
        except (EngineError, OSError) as error:
            message = kind(error=as_engine_error(error))
        with suppress(ConnectionError):  # the process has ended; `expect` reports how
            self.channel.send(message)

    def expect(self, kind: type[M]) -> M:
        """Wait for this message while the model loads. Raises the error that stopped loading."""
        for message in self._messages:
            if isinstance(message, kind):
                return message
            if isinstance(message, CoreRefused):
                raise message.error
            if not isinstance(message, FolderFound):  # not expected, since the model is a folder
                break
        if (code := self._wait()) > 0:  # it wrote a traceback
            raise SystemExit(code)
        raise ModelLoadError(f"while the model was loading, {self.describe_end()}")

    def describe_end(self) -> str:
        """Wait for the process after its channel closed, and describe how it ended."""
        code = self._wait()
        if code >= 0:
            return f"the core's process ended with status {code}"
        hint = ", as the kernel does when memory is short" if -code == signal.SIGKILL else ""
        return f"the core's process was killed by {signal.Signals(-code).name}{hint}"

    def close(self) -> None:
        """Kill the process unless it has ended, and wait, so that its device memory is free afterwards."""
        self._popen.kill()
        self._popen.wait()
        self.channel.close()

    def _wait(self) -> int:
        """Its exit status; a process that still runs without its channel is killed."""
        try:
            return self._popen.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()
