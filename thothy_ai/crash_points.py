"""Places where a process can be made to die, to test what happens next.

`THOTHY_CRASH_POINT=name` ends the process at that place, `name:3` when it reaches the place for the third time.
Without the variable, crash points do nothing.

after_claim         jobs are claimed, none runs yet              worker
after_engine        a result has arrived, nothing is written     worker
after_commit        outcomes are committed, not acknowledged     worker
mid_dispatch        jobs are marked dispatched, not published    dispatcher
after_publish       messages are published, nothing else is done dispatcher
mid_reap            one of the reaper's rules is done            reaper
batch_portion       a part of a batch is enqueued, not noted     reaper
batch_written       a batch's files are written, not recorded    reaper
mid_migration       the schema is changed, not committed         migrate
mid_replace         the old index is gone, the new one not named migrate
before_partitions   the schema is committed, without partitions  migrate
"""

from __future__ import annotations

import os
from typing import Literal, get_args

from thothy_ai.errors import ConfigError

Place = Literal[
    "after_claim",
    "after_engine",
    "after_commit",
    "mid_dispatch",
    "after_publish",
    "mid_reap",
    "batch_portion",
    "batch_written",
    "mid_migration",
    "mid_replace",
    "before_partitions",
]

VARIABLE = "THOTHY_CRASH_POINT"
EXIT_CODE = 86


def _read(wanted: str) -> tuple[str, int]:
    name, _, count = wanted.partition(":")
    if name and (name not in get_args(Place) or not (count or "1").isdecimal()):
        raise ConfigError(f"{VARIABLE}: {wanted!r} is not one of {', '.join(get_args(Place))}, with or without :count")
    return name, int(count or 1)


_name, _left = _read(os.environ.get(VARIABLE, ""))


def crash_point(place: Place) -> None:
    """End the process here without any clean-up, if this place was chosen."""
    global _left  # noqa: PLW0603 - how many more times the place can be reached
    if place == _name:
        _left -= 1
        if _left <= 0:
            os._exit(EXIT_CODE)
