"""Workloads: jobs defined by the lengths of their parts. Parts of the same name have the same tokens.

A file belongs to one of two families. The first are independent jobs over templates:

    {"jobs": [[kind, template tokens, body tokens, output tokens], ...]}

The second are jobs over shared sources. A prompt consists of a house style, the source, the kind's instructions and a
few tokens of its own:

    {"jobs": [[source, source tokens, kind, output tokens], ...], "arrival": [index of a job, ...]}
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from thothy_ai.engine.api.errors import InvalidRequestError

HOUSE_STYLE_TOKENS = 96
INSTRUCTION_TOKENS = {"trend_summary": 120, "hook": 60, "translation": 90, "report": 200}
OWN_TOKENS = 8


class PromptPart(NamedTuple):
    """A run of prompt tokens; parts of the same name have the same tokens."""

    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class WorkloadJob:
    """One job: the parts of its prompt, how many of those its siblings share, and the number of output tokens."""

    kind: str
    parts: tuple[PromptPart, ...]
    shared_parts: int
    output_tokens: int

    @property
    def shared(self) -> tuple[PromptPart, ...]:
        """The prefix that the job shares with its siblings. It identifies the group."""
        return self.parts[: self.shared_parts]

    @property
    def prompt_tokens(self) -> int:
        return sum(part.tokens for part in self.parts)


class Order(StrEnum):
    """The order in which jobs are submitted."""

    LISTED = "listed"  # as in the file
    SOURCE = "source"  # siblings next to each other
    SHUFFLED = "shuffled"  # in the file's arrival order, or at random if it has none


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs as listed, and their order of arrival as indices into them; None if the file has none."""

    name: str
    jobs: tuple[WorkloadJob, ...]
    arrival: tuple[int, ...] | None = None

    def ordered(self, order: Order, seed: int = 0) -> tuple[WorkloadJob, ...]:
        """The jobs in this order; `seed` is for shuffling if the file has no arrival order."""
        if order is Order.SOURCE:
            first = {job.shared: index for index, job in reversed(list(enumerate(self.jobs)))}
            return tuple(sorted(self.jobs, key=lambda job: first[job.shared]))
        if order is Order.SHUFFLED:
            indices = self.arrival or random.Random(seed).sample(range(len(self.jobs)), len(self.jobs))
            return tuple(self.jobs[index] for index in indices)
        return self.jobs


@dataclass(frozen=True, slots=True)
class DrainWork:
    """The jobs to drain, the name and size of their workload, and the jobs of the warm-up."""

    name: str
    jobs: tuple[WorkloadJob, ...]
    warm_up: tuple[WorkloadJob, ...]
    listed: int

    @property
    def counted(self) -> str:
        """`1,000`, or `32 of 1,000`."""
        return f"{len(self.jobs):,}" if len(self.jobs) == self.listed else f"{len(self.jobs):,} of {self.listed:,}"


_TEMPLATE_ROW = {"kind": str, "template tokens": int, "body tokens": int, "output tokens": int}
_SIBLING_ROW = {"source": int, "source tokens": int, "kind": str, "output tokens": int}


def read_workload(path: Path) -> Workload:
    """Read a workload file. Raises `InvalidRequestError` if it cannot be read or is malformed."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequestError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path}: not JSON: {error}") from error
    rows = content.get("jobs") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        raise InvalidRequestError(f'{path}: not a workload: expected an object with "jobs", a list of at least one job')
    arrival = content.get("arrival")
    if arrival is None:
        _check_rows(path, rows, _TEMPLATE_ROW)
        return Workload(path.stem, template_jobs(rows))
    _check_rows(path, rows, _SIBLING_ROW)
    unknown = sorted({row[2] for row in rows} - INSTRUCTION_TOKENS.keys())
    if unknown:
        known = ", ".join(sorted(INSTRUCTION_TOKENS))
        raise InvalidRequestError(f"{path}: unknown kind {unknown[0]!r}; with 'arrival', kinds are {known}")
    indices = isinstance(arrival, list) and all(type(index) is int for index in arrival)
    if not indices or sorted(arrival) != list(range(len(rows))):
        raise InvalidRequestError(f"{path}: 'arrival' must list the indices 0 to {len(rows) - 1}, each once")
    return Workload(path.stem, sibling_jobs(rows), tuple(arrival))


def _check_rows(path: Path, rows: list[Any], columns: dict[str, type]) -> None:
    """Raise `InvalidRequestError` for the first malformed row. Token counts must be positive."""

    def fits(value: object, column: str, kind: type) -> bool:
        return type(value) is kind and not (column.endswith("tokens") and isinstance(value, int) and value < 1)

    for index, row in enumerate(rows):
        is_row = isinstance(row, list) and len(row) == len(columns)
        if not is_row or not all(map(fits, row, columns, columns.values())):
            raise InvalidRequestError(f"{path}: job {index} is {row!r}; expected [{', '.join(columns)}]")


def template_jobs(rows: Iterable[Sequence[Any]]) -> tuple[WorkloadJob, ...]:
    """Jobs from rows of [kind, template tokens, body tokens, output tokens]. Jobs of a kind share its template."""
    return tuple(
        WorkloadJob(
            kind,
            (PromptPart(f"template {kind}", int(template)), PromptPart(f"body {index}", int(body))),
            1,
            int(output),
        )
        for index, (kind, template, body, output) in enumerate(rows)
    )


def sibling_jobs(rows: Iterable[Sequence[Any]]) -> tuple[WorkloadJob, ...]:
    """Jobs from rows of [source, source tokens, kind, output tokens]. Their prompts have four parts."""
    return tuple(
        WorkloadJob(
            kind,
            (
                PromptPart("house style", HOUSE_STYLE_TOKENS),
                PromptPart(f"source {source}", int(tokens)),
                PromptPart(f"instructions {kind}", INSTRUCTION_TOKENS[kind]),
                PromptPart(f"own {index}", OWN_TOKENS),
            ),
            2,
            int(output),
        )
        for index, (source, tokens, kind, output) in enumerate(rows)
    )


def with_house_prompt(workload: Workload, tokens: int) -> Workload:
    """The workload with this number of shared tokens before every prompt."""
    if not tokens:
        return workload
    house = PromptPart("house prompt", tokens)
    jobs = (replace(job, parts=(house, *job.parts), shared_parts=1 + job.shared_parts) for job in workload.jobs)
    return replace(workload, jobs=tuple(jobs))


class TokenDraw:
    """Random token ids, the same for the same seed and part."""

    def __init__(self, vocab_size: int, seed: str) -> None:
        self._vocabulary = range(vocab_size)
        self._seed = seed
        self._drawn: dict[PromptPart, tuple[int, ...]] = {}

    def prompt(self, job: WorkloadJob) -> tuple[int, ...]:
        """The ids of the job's prompt."""
        for part in job.parts:
            if part not in self._drawn:
                draw = random.Random(f"{self._seed} {part.name}")
                self._drawn[part] = tuple(draw.choices(self._vocabulary, k=part.tokens))
        return tuple(token for part in job.parts for token in self._drawn[part])
