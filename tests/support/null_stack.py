"""`EmbeddedStack` with an engine that needs no model; run as a script, the `thothy` command with that stack.

The script's first argument is the seconds that the engine takes for an answer, or LOADING; the others are those of
`thothy`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import thothy_ai.embedded
from thothy_ai.cli import main
from thothy_ai.embedded import EmbeddedStack
from thothy_ai.embedded.placement import Pair
from thothy_ai.embedded.process import Program
from thothy_ai.settings import Settings

NEVER = 3600.0  # seconds: no test waits for such an answer
LOADING = math.inf  # instead of seconds: its engine is never ready


class NullStack(EmbeddedStack):
    """The whole stack, but for the engine's model."""

    latency = 0.0

    def __init__(self, settings: Settings, *, latency: float | None = None, **options: Any) -> None:
        super().__init__(settings.model_copy(update={"model": Path("null")}), **(options | {"null": True}))
        self._latency = self.latency if latency is None else latency

    def _engine_program(self, pair: Pair) -> Program:
        plain = super()._engine_program(pair)
        loads = (sys.executable, "-c", f"import time; time.sleep({NEVER})")
        answers = (*plain.argv, "--null-latency", str(self._latency))
        return replace(plain, argv=loads if self._latency == LOADING else answers)


if __name__ == "__main__":
    NullStack.latency = float(sys.argv.pop(1))
    thothy_ai.embedded.EmbeddedStack = NullStack
    main()
