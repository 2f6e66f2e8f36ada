"""A grammar that forces tokens."""

from __future__ import annotations

from thothy_ai.engine.api.errors import GrammarError


class Forcing:
    """A grammar that allows anything, but after token `trigger` forces `run`; it checks what it is fed."""

    def __init__(self, trigger: int, run: list[int], *, broken: bool = False, at_once: bool = True) -> None:
        self._trigger, self._run, self._broken, self._at_once = trigger, run, broken, at_once
        self._queue: list[int] = []
        self.finished = False

    def fill_mask(self, row) -> None:
        row.fill_(-1)
        if self._queue:
            row.zero_()
            row[self._queue[0] // 32] = 1 << (self._queue[0] % 32)

    def advance(self, token: int) -> None:
        if self._broken:
            raise GrammarError("no such token")
        if self._queue:
            assert token == self._queue.pop(0)
        elif token == self._trigger:
            self._queue = list(self._run)

    def may_force_after(self, token: int) -> bool:
        return self._at_once

    def forced(self) -> list[int]:
        return list(self._queue)
