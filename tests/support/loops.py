"""`on_a_loop`: runs a test that is a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """The test as a function."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
