"""Messages between a service and the processes that run its kinds' code: tasks to them, and one answer to each task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from thothy_ai.engine.api.errors import ProtocolError
from thothy_ai.engine.wire.codec import Codec, from_json, to_json
from thothy_ai.jobs.api.plan import Early, Outputs
from thothy_ai.jobs.api.verdict import Rejection, RejectionReason
from thothy_ai.plans.advance import Judgement, PlannedJob, PlanStep
from thothy_ai.queue.edits import CheckedEdit

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class StartTask:
    """The first task: the kinds to load and where to import them from, the limit of a task in seconds of processor
    time, and the gates that make findings instead of rejecting. `warm`: before a task needs it, load what the
    validators of the built-in kinds load.
    """

    kinds: tuple[str, ...]
    path: tuple[str, ...]
    seconds: float
    gates_as_findings: tuple[RejectionReason, ...] = ()
    warm: bool = False


@dataclass(frozen=True, slots=True)
class AdvanceTask:
    """Take a plan's next step."""

    job: PlannedJob
    answered: tuple[Outputs, ...]


@dataclass(frozen=True, slots=True)
class CompareTask:
    """Look for an artifact that is nearly the same as `body`. All artifacts are JSON values."""

    kind: str
    body: Any
    others: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class EarlyTask:
    """Judge an unfinished output, as `early_rejection` does."""

    text: str
    locale: str | None
    early: Early | None


@dataclass(frozen=True, slots=True)
class EditTask:
    """Check a person's edit of the artifact of a job with this kind and request."""

    kind: str
    request: Any
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Started:
    """The kinds are loaded: the process accepts tasks."""


@dataclass(frozen=True, slots=True)
class PlanFailed:
    """The plan cannot begin: the fields of a `PlanError`."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The answer to a comparison or an early judgement: why the output is rejected, if it is."""

    rejection: Rejection | None


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The kind's code raised an error, or returned something that cannot be encoded."""

    error: str


@dataclass(frozen=True, slots=True)
class AsJson:
    """A message as JSON text, for JSON values that msgpack cannot encode."""

    kind: str
    text: str


class JudgeCodec(Generic[M]):
    """msgpack, with `AsJson` for lone surrogates and integers beyond 64 bits, which JSON values can contain."""

    def __init__(self, *kinds: type[M]) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._codec: Codec[Any] = Codec(AsJson, *kinds)

    def encode(self, message: M) -> bytes:
        """A whole frame; ProtocolError if the message cannot be encoded."""
        try:
            return self._codec.encode(message)
        except ProtocolError:
            return self._codec.encode(AsJson(type(message).__name__, to_json(message)))

    def decode(self, payload: bytes) -> M:
        """One message, from a frame without its length; ProtocolError if it is malformed."""
        message = self._codec.decode(payload)
        if isinstance(message, AsJson):
            if (kind := self._kinds.get(message.kind)) is None:
                raise ProtocolError(f"a message of an unknown kind: {message.kind!r:.80}")
            return from_json(kind, message.text)
        found: M = message
        return found


Task = StartTask | AdvanceTask | CompareTask | EarlyTask | EditTask
Answer = Started | PlanStep | Judgement | PlanFailed | Rejected | CheckedEdit | TaskFailed
TASKS: JudgeCodec[Task] = JudgeCodec(StartTask, AdvanceTask, CompareTask, EarlyTask, EditTask)
ANSWERS: JudgeCodec[Answer] = JudgeCodec(Started, PlanStep, Judgement, PlanFailed, Rejected, CheckedEdit, TaskFailed)
