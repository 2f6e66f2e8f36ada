"""What a forecast is made from and what it says: plain frozen values, without a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Key(NamedTuple):
    """Jobs that are learnt together: a kind, and the name of the model that runs it (empty: any)."""

    kind: str
    model: str = ""


@dataclass(frozen=True, slots=True)
class EndedAttempts:
    """Attempts of a kind that ended between two observations. Seconds; `compute` is of one engine."""

    finished: float = 0.0  # jobs that succeeded or died
    left: float = 0.0  # jobs that ended in any state
    attempts: float = 0.0  # that ended by themselves
    compute: float = 0.0
    compute_squares: float = 0.0
    runs: float = 0.0  # attempts with output, whose durations follow
    log_run: float = 0.0  # sum of the logarithms of their seconds, from claim to end
    log_run_squares: float = 0.0
    children: Mapping[str, float] = field(default_factory=dict)  # follow-up jobs of the finished ones, by kind


@dataclass(frozen=True, slots=True)
class LoadSums:
    """Sums over attempts: how long a token takes (y, seconds) beside how many sequences (x)."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0


@dataclass(frozen=True, slots=True)
class WaitingJobs:
    """Waiting jobs of one kind that are close in planned order. `deadline`: seconds from now; None without one."""

    key: Key
    jobs: float
    order: float = 0.0  # virtual deadline; lower runs first
    deadline: float | None = None


@dataclass(frozen=True, slots=True)
class RunningJobs:
    """Running jobs of one kind that were claimed about the same time. `age`: seconds since."""

    key: Key
    jobs: float
    age: float


@dataclass(frozen=True, slots=True)
class Observation:
    """The queue at one moment, and what ended since the last one. `at`: seconds since the epoch.

    `engines`: those that are ready, by the name of their model. `returning`: of those that start again, the seconds
    until each is ready. `joined`: when the last became ready. `delayed`: jobs for later, which are not in `waiting`.
    `capacity`: most sequences that one engine runs at once, 0 if not known. `gpus`: devices per engine;
    `on_gpu`: they are GPUs. `partly_paused`: a part of the queue is, whose jobs are
    not in `waiting`. `oldest`: when the oldest job was enqueued that waits or runs.
    """

    at: float
    waiting: tuple[WaitingJobs, ...] = ()
    running: tuple[RunningJobs, ...] = ()
    engines: Mapping[str, int] = field(default_factory=dict)
    returning: Mapping[str, Sequence[float]] = field(default_factory=dict)
    joined: float | None = None
    ended: Mapping[Key, EndedAttempts] = field(default_factory=dict)
    load: LoadSums = field(default_factory=LoadSums)
    paused: bool = False
    partly_paused: bool = False
    delayed: Mapping[Key, float] = field(default_factory=dict)
    capacity: int = 0
    gpus: float = 1.0
    on_gpu: bool = False
    oldest: float | None = None

    @property
    def waiting_jobs(self) -> float:
        """Jobs that are due and do not run."""
        return sum(group.jobs for group in self.waiting)

    @property
    def running_jobs(self) -> float:
        return sum(group.jobs for group in self.running)

    @property
    def open_jobs(self) -> float:
        """Jobs that are due or run."""
        return self.waiting_jobs + self.running_jobs

    @property
    def ready(self) -> int:
        return sum(self.engines.values())

    @property
    def until_back(self) -> list[float]:
        """Seconds until each engine that starts again is ready, the first one first."""
        return sorted(seconds for each in self.returning.values() for seconds in each)

    @property
    def expected(self) -> int:
        """Engines that are ready, or start again."""
        return self.ready + len(self.until_back)

    def of_model(self, model: str) -> Observation:
        """The jobs that name this model, and its engines."""
        return replace(
            self,
            waiting=tuple(group for group in self.waiting if group.key.model == model),
            running=tuple(group for group in self.running if group.key.model == model),
            engines={model: self.engines.get(model, 0)},
            returning={model: self.returning.get(model, ())},
        )

    def served(self) -> Observation:
        """Without the waiting jobs that name a model which no engine serves."""
        return replace(self, waiting=tuple(g for g in self.waiting if not g.key.model or g.key.model in self.engines))
