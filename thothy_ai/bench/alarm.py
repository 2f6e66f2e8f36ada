"""`alarm`: limits the time of a block with SIGALRM. Only for the main thread, which receives signals."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def alarm(seconds: float, error: Callable[[], Exception]) -> Iterator[None]:
    """Raise the exception from `error` when the time is over. The signal's previous handler is restored at the end."""

    def over(_: int, __: FrameType | None) -> NoReturn:
        raise error()

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
