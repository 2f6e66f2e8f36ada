"""The engine's side of the verifier: a process that judges pairs, and is replaced when it hangs or dies.

Whatever happens to the process, each request is answered. Pairs that were not judged have no label, and their claims
get no finding.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from thothy_ai.engine.api.errors import ModelLoadError
from thothy_ai.engine.checkpoint.fingerprint import fingerprint
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.child import start_child
from thothy_ai.engine.wire.verifier_messages import (
    FROM_VERIFIER,
    TO_VERIFIER,
    FromVerifier,
    JudgePairs,
    LoadVerifier,
    PairsJudged,
    ToVerifier,
    VerifierReady,
    VerifierRefused,
)

Pairs = tuple[tuple[str, str], ...]
OnJudged = Callable[[list[str | None], float], None]  # the labels, and the seconds spent on them

STALL_SECONDS = 45.0  # without a batch until it counts as hung; less than an engine's limit
_LOOK_SECONDS = 1.0
_MIN_PAUSE, _MAX_PAUSE = 1.0, 60.0  # seconds until a dead process is replaced
_MODULE = "thothy_ai.engine.entailment.process"

log = logging.getLogger(__name__)


@dataclass
class _PairsAsked:
    pairs: Pairs
    on_judged: OnJudged
    labels: dict[int, str | None] = field(default_factory=dict)
    seconds: float = 0.0


class Verifier:
    """Owns the process and the requests in flight there."""

    def __init__(self, wanted: LoadVerifier) -> None:
        """Start the process and wait until its model is loaded. ModelLoadError if that fails."""
        self._wanted = wanted
        self.stall_seconds = STALL_SECONDS
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # guards the fields below
        self._asked: dict[int, _PairsAsked] = {}
        self._heard = time.monotonic()
        self._closing = threading.Event()
        self.running = threading.Event()
        self.batches = 0  # grows while it works
        self._start()
        self._weights = fingerprint(wanted.folder)
        self._reader = threading.Thread(target=self._read, name="verifier-reader", daemon=True)
        self._reader.start()
        threading.Thread(target=self._watch, name="verifier-watch", daemon=True).start()

    @property
    def name(self) -> str:
        """The name of the model's folder."""
        return self._wanted.folder.resolve().name

    @property
    def weights(self) -> str:
        """A digest of the model's files."""
        return self._weights

    def judge(self, pairs: Pairs, on_judged: OnJudged) -> None:
        """Have pairs judged; calls `on_judged` once. While no process runs, it is called at once, without labels."""
        number = next(self._numbers)
        with self._lock:
            running = self.running.is_set()
            if not self._asked:
                self._heard = time.monotonic()
            if running:
                self._asked[number] = _PairsAsked(pairs, on_judged)
        if not running:
            on_judged([None] * len(pairs), 0.0)
            return
        with suppress(OSError):  # it has died; the reading thread notices, and answers
            self._channel.send(JudgePairs(number, pairs))

    def close(self) -> None:
        """End the process, and answer pairs that it has not judged without labels."""
        self._closing.set()
        self._process.kill()
        self._reader.join()

    def _start(self) -> None:
        self._process, end = start_child(_MODULE)
        self._channel: Channel[ToVerifier, FromVerifier] = Channel(end, TO_VERIFIER, FROM_VERIFIER)
        self._messages = iter(self._channel)
        self._channel.send(self._wanted)
        answer = next(self._messages, None)
        if isinstance(answer, VerifierReady):
            with self._lock:
                self.running.set()
            return
        code = self._process.wait()
        self._channel.close()
        if isinstance(answer, VerifierRefused):
            raise answer.error
        raise ModelLoadError(f"--verifier {self._wanted.folder}: its process ended with status {code}")

    def _read(self) -> None:
        """Pass on the process's judgements; when it ends, start another one."""
        while True:
            for message in self._messages:
                if isinstance(message, PairsJudged):
                    self._take(message)
            self._process.kill()
            code = self._process.wait()
            self._channel.close()
            with self._lock:
                self.running.clear()
                unanswered, self._asked = list(self._asked.values()), {}
                self.batches += bool(unanswered)
            _answer(unanswered)  # with the labels received so far
            if self._closing.is_set():
                return
            log.error("the verifier's process has ended with status %s", code)
            if not self._started_again():
                return

    def _started_again(self) -> bool:
        """Start the process again, as often as needed; returns False once this object is closed."""
        pause = _MIN_PAUSE
        while not self._closing.wait(pause):
            try:
                self._start()
            except (ModelLoadError, OSError) as error:
                log.error("the verifier cannot be started again: %s", error)  # noqa: TRY400  one line
                pause = min(2 * pause, _MAX_PAUSE)
            else:
                log.warning("the verifier was started again")
                return True
        return False

    def _take(self, judged: PairsJudged) -> None:
        done = []
        with self._lock:
            self._heard = time.monotonic()
            self.batches += 1
            for each in judged.requests:
                if (asked := self._asked.get(each.number)) is None:
                    continue
                asked.labels |= each.labels
                asked.seconds += each.seconds
                if len(asked.labels) == len(asked.pairs):
                    done.append(self._asked.pop(each.number))
        _answer(done)

    def _watch(self) -> None:
        """Kill a process that hangs; the reading thread replaces it."""
        while not self._closing.wait(_LOOK_SECONDS):
            with self._lock:
                hangs = self._asked and time.monotonic() - self._heard > self.stall_seconds
            if hangs:
                log.error("the verifier has judged nothing for %g s, and is ended", self.stall_seconds)
                self._process.kill()


def _answer(asked: list[_PairsAsked]) -> None:
    for each in asked:
        each.on_judged([each.labels.get(place) for place in range(len(each.pairs))], each.seconds)
