"""What a leader says when Postgres cannot be reached."""

from __future__ import annotations

import pytest

from thothy_ai.errors import DatabaseUnreachableError
from thothy_ai.queue.leader import Leader
from thothy_ai.settings import Settings

NOBODY_LISTENS = "postgresql+psycopg://thothy:secret@127.0.0.1:1/thothy"


def test_every_use_of_a_database_that_is_away_says_so() -> None:
    leader = Leader(Settings.load(database_url=NOBODY_LISTENS), "dispatcher")
    with pytest.raises(DatabaseUnreachableError), leader.snapshot():
        pytest.fail("there is no snapshot")
    with pytest.raises(DatabaseUnreachableError):
        leader.ask("admin/now")
    with pytest.raises(DatabaseUnreachableError):
        leader.limit(1.0, 1.0)
    leader.stop()
    leader.lead(lambda: pytest.fail("it has stopped"))  # closes what it waits on
