"""`first_rejection`: makes one judgement of several checks, and keeps it: a plan is replayed at each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, wraps
from typing import ParamSpec, cast

from thothy_ai.jobs.api.verdict import Rejection

P = ParamSpec("P")
Checks = Callable[P, Iterator[Rejection | None]]
Judgement = Callable[P, Rejection | None]


def first_rejection(kept: int) -> Callable[[Checks[P]], Judgement[P]]:
    """Decorates a generator of checks: the first rejection, if any. The last `kept` judgements are not made again."""

    def decorated(checks: Checks[P]) -> Judgement[P]:
        @wraps(checks)
        def judged(*args: P.args, **kwargs: P.kwargs) -> Rejection | None:
            return next(filter(None, checks(*args, **kwargs)), None)

        return cast("Judgement[P]", lru_cache(kept)(judged))

    return decorated
