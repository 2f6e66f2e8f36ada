"""A message that repeats while a server is away is logged at intervals. Libraries log warnings only."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from thothy_ai import telemetry
from thothy_ai.db.connect import make_engine
from thothy_ai.settings import Settings

NAME = "test.rate_limit"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger, limited = logging.getLogger(NAME), telemetry.RateLimitFilter()
    logger.addFilter(limited)
    yield logger
    logger.removeFilter(limited)


def test_a_repeated_message_is_logged_once_and_counted(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(telemetry.time, "monotonic", lambda: now)
    for attempt in range(5):
        logger.error("cannot connect: %s\n", attempt)
    logger.error("something else")
    now += telemetry.QUIET_SECONDS
    logger.error("cannot connect: %s\n", "again")
    logger.error("cannot connect: %s\n", "and again")
    now += telemetry.QUIET_SECONDS
    logger.error("something else")
    assert [record.getMessage() for record in caplog.records if record.name == NAME] == [
        "cannot connect: 0\n",
        "something else",
        "cannot connect: again (4 more of these since)",
        "something else",
    ]


def test_the_pool_of_an_engine_is_among_what_logs_warnings_only() -> None:
    """SQLAlchemy logs each time that it makes one anew."""
    engine = make_engine(Settings(database_url="postgresql+psycopg://x:y@127.0.0.1:1/z"))
    assert any(f"{engine.pool.logger.name}.".startswith(f"{name}.") for name in telemetry.CHATTY)
