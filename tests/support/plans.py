"""Runs plans with prepared outputs, and keeps the calls that they make."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from thothy_ai.jobs import Call, Context, End, Output, Request, Verdict, registry
from thothy_ai.jobs.api.plan import run

PLAIN = Context(parameters=135_000_000)


class Scripted:
    """Answers a plan's calls with outputs in order; a mapping stands for its JSON, and the last one is repeated."""

    def __init__(self, *outputs: Mapping[str, Any] | str | Output) -> None:
        self._outputs = list(map(_output, outputs))
        self.calls: list[Call] = []

    def __call__(self, call: Call) -> Output:
        self.calls.append(call)
        return self._outputs.pop(0) if len(self._outputs) > 1 else self._outputs[0]

    @property
    def steps(self) -> list[str]:
        return [call.step for call in self.calls]


def verdict_on(
    request: Request, *outputs: Mapping[str, Any] | str | Output, context: Context | None = None
) -> tuple[Verdict, Scripted]:
    """The verdict of a request's plan when the engine answers so, and what it was asked."""
    script = Scripted(*outputs)
    return run(registry.kind_of(request).plan(request, context or Context()), script), script


def first_calls(request: Request, context: Context | None = None) -> Sequence[Call]:
    """The calls of a plan's first step."""
    return next(registry.kind_of(request).plan(request, context or Context()))


def _output(value: Mapping[str, Any] | str | Output) -> Output:
    if isinstance(value, Output):
        return value
    return Output(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), End.COMPLETE)
