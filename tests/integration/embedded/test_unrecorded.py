"""An engine that the dispatcher does not know of gets no jobs: a stack with one does not count as started."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.null_stack import NullStack
from thothy_ai.embedded import readiness
from thothy_ai.embedded.placement import Pair
from thothy_ai.embedded.process import Program
from thothy_ai.errors import ServiceStartError
from thothy_ai.settings import PREFIX, Settings

pytestmark = pytest.mark.usefixtures("clean_environment")


class Unrecorded(NullStack):
    """Its engine serves, and has no database to be recorded in."""

    def _engine_program(self, pair: Pair) -> Program:
        plain = super()._engine_program(pair)
        elsewhere = {f"{PREFIX}DATABASE_URL": "", f"{PREFIX}HOME": str(self.home / "elsewhere")}
        return replace(plain, env={**plain.env, **elsewhere})


def test_an_engine_that_is_not_recorded_ends_the_start(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "RECORDED_SECONDS", 0.5)
    stack = Unrecorded(Settings.load(home=home))
    with pytest.raises(ServiceStartError, match=r"^the engine at unix://.+ serves, but is not recorded in Postgres"):
        stack.start()
    assert not any(pid and Path(f"/proc/{pid}").exists() for pid in stack.pids().values())
