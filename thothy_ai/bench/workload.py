"""Workloads: jobs by the lengths of their parts. A part has a name; parts of the same name have the same tokens.

A file belongs to one of two families. Independent jobs over templates:

    {"jobs": [[kind, template tokens, body tokens, output tokens], ...]}

Jobs over shared sources, where a prompt consists of a house style, the source, the kind's instructions and a few tokens
of its own:

    {"jobs": [[source, source tokens, kind, output tokens], ...], "arrival": [index of a job, ...]}
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from thothy_ai.engine.errors import InvalidRequestError

HOUSE_STYLE_TOKENS = 96
INSTRUCTION_TOKENS = {"trend_summary": 120, "hook": 60, "translation": 90, "report": 200}
OWN_TOKENS = 8


class Part(NamedTuple):
    """A run of prompt tokens; the same name stands for the same tokens everywhere."""

    name: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Job:
    """One job: the parts of its prompt, how many of them its siblings share, and the number of output tokens."""

    kind: str
    parts: tuple[Part, ...]
    shared_parts: int
    output_tokens: int

    @property
    def shared(self) -> tuple[Part, ...]:
        """The prefix that it shares with its siblings, and that identifies them."""
        return self.parts[: self.shared_parts]

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt."""
        return sum(part.tokens for part in self.parts)


class Order(StrEnum):
    """Order in which jobs are submitted."""

    LISTED = "listed"  # as in the file
    SOURCE = "source"  # siblings next to each other
    SHUFFLED = "shuffled"  # the file's arrival order, or at random


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs as listed, and their order of arrival as indices into them; None if the file has none."""

    name: str
    jobs: tuple[Job, ...]
    arrival: tuple[int, ...] | None = None

    def ordered(self, order: Order, seed: int = 0) -> tuple[Job, ...]:
        """The jobs in this order; `seed` is used for a shuffle that the file does not give."""
        if order is Order.SOURCE:
            first = {job.shared: index for index, job in reversed(list(enumerate(self.jobs)))}
            return tuple(sorted(self.jobs, key=lambda job: first[job.shared]))
        if order is Order.SHUFFLED:
            indices = self.arrival or random.Random(seed).sample(range(len(self.jobs)), len(self.jobs))
            return tuple(self.jobs[index] for index in indices)
        return self.jobs


@dataclass(frozen=True, slots=True)
class Work:
    """The jobs to drain, the name of their workload, and the jobs of the warm-up."""

    name: str
    jobs: tuple[Job, ...]
    warm_up: tuple[Job, ...]


def read_workload(path: Path) -> Workload:
    """Read a workload file. Raises `InvalidRequestError` if it cannot be read or is malformed."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows, arrival = content["jobs"], content.get("arrival")
        if arrival is None:
            return Workload(path.stem, template_jobs(rows))
        if sorted(arrival) != list(range(len(rows))):
            raise InvalidRequestError(f"{path}: 'arrival' does not name every job once")
        return Workload(path.stem, sibling_jobs(rows), tuple(arrival))
    except OSError as error:
        raise InvalidRequestError(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequestError(f"{path}: not a workload: {error!r}") from error


def template_jobs(rows: Iterable[Sequence[Any]]) -> tuple[Job, ...]:
    """Jobs of [kind, template tokens, body tokens, output tokens]; a kind's template is shared."""
    return tuple(
        Job(kind, (Part(f"template {kind}", int(template)), Part(f"body {index}", int(body))), 1, int(output))
        for index, (kind, template, body, output) in enumerate(rows)
    )


def sibling_jobs(rows: Iterable[Sequence[Any]]) -> tuple[Job, ...]:
    """Jobs of [source, source tokens, kind, output tokens]: house style, source, instructions, own tokens."""
    return tuple(
        Job(
            kind,
            (
                Part("house style", HOUSE_STYLE_TOKENS),
                Part(f"source {source}", int(tokens)),
                Part(f"instructions {kind}", INSTRUCTION_TOKENS[kind]),
                Part(f"own {index}", OWN_TOKENS),
            ),
            2,
            int(output),
        )
        for index, (source, tokens, kind, output) in enumerate(rows)
    )


class TokenDraw:
    """Random token ids, the same for the same seed and part."""

    def __init__(self, vocab_size: int, seed: str) -> None:
        self._vocabulary = range(vocab_size)
        self._seed = seed
        self._drawn: dict[Part, tuple[int, ...]] = {}

    def prompt(self, job: Job) -> tuple[int, ...]:
        """The job's prompt."""
        return tuple(token for part in job.parts for token in self._tokens(part))

    def _tokens(self, part: Part) -> tuple[int, ...]:
        if part not in self._drawn:
            draw = random.Random(f"{self._seed} {part.name}")
            self._drawn[part] = tuple(draw.choices(self._vocabulary, k=part.tokens))
        return self._drawn[part]
