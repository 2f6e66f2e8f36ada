"""An engine process without a model that a prompt kills: as soon as it runs a prompt that begins with `kill`, and holds
so many requests.

Run as `python -m tests.support.mortal_null_engine URL SECONDS ROWS REQUESTS`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.api.backend import RunningEngine, Sink
from thothy_ai.engine.api.options import EngineOptions
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.process import main
from thothy_ai.engine.serving.address import admissions_path, parse_address
from thothy_ai.settings import Settings
from thothy_ai.worker.registration import registered


class MortalNullEngine(NullEngine):
    """Looks often whether its time has come."""

    def __init__(self, options: EngineOptions, requests: int) -> None:
        self._requests, self._killers = requests, set[str]()
        path = admissions_path(parse_address(options.url))
        super().__init__(options.null_latency, options, path)
        threading.Thread(target=self._watch, daemon=True).start()

    def submit(self, request: GenerationRequest, sink: Sink) -> None:
        if request.messages[0].content.startswith("kill"):
            self._killers.add(request.id)
        super().submit(request, sink)

    def _watch(self) -> None:
        while True:
            time.sleep(0.01)
            with self._lock:
                if len(self._open) >= self._requests and not self._killers.isdisjoint(self._running):
                    os.kill(os.getpid(), signal.SIGKILL)


def run(url: str, seconds: str, rows: str, requests: str) -> None:
    def make_engine(options: EngineOptions) -> RunningEngine:
        return MortalNullEngine(options, int(requests))

    main.make_engine = make_engine
    options = EngineOptions(url, null=True, null_latency=float(seconds), max_rows=int(rows))
    with registered(options, Settings.load()) as (known, observer):
        main.run_engine(known, observer)


if __name__ == "__main__":
    run(*sys.argv[1:])
