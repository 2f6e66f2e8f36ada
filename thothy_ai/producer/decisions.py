"""People's decisions on artifacts: their kinds, the effect of an edit, and conflicts. No I/O.

    (clean), needs_review, needs_edit, held ── approve ──▶ approved ─┐
                                            ── reject ───▶ rejected ─┼─ reopen ──▶ held
                                                         superseded ─┘
                                            ── hold ─────▶ held
                                            ── edit ─────▶ the next version: needs_review; needs_edit for a draft
                                            ── send_back ▶ the next version, by another attempt

A decision names the version that the person has seen. The second person to decide on a version is told who was first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

from pydantic import ValidationError
from pydantic_core import PydanticCustomError
from sqlalchemy import RowMapping

from thothy_ai.db.states import Action, JobState, ReviewState
from thothy_ai.errors import (
    DecisionConflictError,
    InvalidDecisionError,
    NothingToDecideError,
    ThothyError,
    UnreadableArtifactError,
)
from thothy_ai.jobs import Artifact, registry
from thothy_ai.jobs.publishing.plain import plain
from thothy_ai.jobs.registry import UnknownKindError
from thothy_ai.jobs.text.strings import check_encodable, strings_in
from thothy_ai.queue.canonical import canonical
from thothy_ai.queue.edits import CheckedEdit, artifact_of, check_edit
from thothy_ai.queue.follow_ups import follow_up_row

MAX_NAME_CHARS = 200
MAX_NOTE_CHARS = 2_000  # it goes into a prompt
MAX_EDIT_CHARS = 4_000_000  # as JSON; the longest artifact is a translation
MAX_EXAMPLE_CHARS = 1_500  # of an approved artifact in others' prompts
CLEAN: Final = "clean"  # a succeeded job that needs no person
UNDECIDED: Final = (CLEAN, ReviewState.NEEDS_REVIEW, ReviewState.NEEDS_EDIT, ReviewState.HELD)
DECIDED: Final = (ReviewState.APPROVED, ReviewState.REJECTED, ReviewState.SUPERSEDED)
NEEDS_NOTE: Final = {
    Action.REJECT: "say why nobody should publish it",
    Action.SEND_BACK: "say what the next attempt is to do otherwise",
}
_CITED = re.compile(r" \[\d+\]")
_AFTER: Final = {
    Action.APPROVE: ReviewState.APPROVED,
    Action.EDIT: ReviewState.NEEDS_REVIEW,
    Action.REJECT: ReviewState.REJECTED,
    Action.HOLD: ReviewState.HELD,
    Action.REOPEN: ReviewState.HELD,
}


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision, before it is made. `by` names a person or a key; `note` gives the reason, or instructions for the
    next attempt.

    `body` is an edit's: all fields of the artifact. An approved artifact becomes an example of the `voice`, by default
    the request's. Raises `InvalidDecisionError`.
    """

    action: Action | str
    by: str
    note: str | None = None
    body: Mapping[str, Any] | None = None
    voice: str | None = None

    def __post_init__(self) -> None:
        if self.action not in list(Action):
            raise InvalidDecisionError("action", f"{self.action!r} is not one of {', '.join(Action)}")
        object.__setattr__(self, "action", Action(self.action))
        _check_line("by", self.by, MAX_NAME_CHARS)
        if self.action in NEEDS_NOTE and not (isinstance(self.note, str) and self.note.strip()):
            raise InvalidDecisionError("note", f"is missing: {NEEDS_NOTE[Action(self.action)]}")
        if self.note is not None:
            _check_text("note", self.note, MAX_NOTE_CHARS)
        if (self.body is not None) != (self.action is Action.EDIT):
            given = "is missing: pass all fields of the artifact" if self.body is None else "belongs to an edit only"
            raise InvalidDecisionError("body", given)
        if self.body is not None:
            _check_body(self.body)
        if self.voice is not None:
            if self.action is not Action.APPROVE:
                raise InvalidDecisionError("voice", "belongs to an approval only")
            _check_line("voice", self.voice, MAX_NAME_CHARS)


class FieldChange(NamedTuple):
    """A person's change of a field, named by its dotted path. None stands for a missing field."""

    part: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class PastDecision:
    """A past decision on this version."""

    version: int
    action: str
    decided_by: str
    decided_at: datetime
    note: str | None
    voice: str | None


@dataclass(frozen=True, slots=True)
class CurrentVersion:
    """The version of a job's artifact that is decided on next, its findings, and what was decided before.

    `body` has the fields of the artifact, None if the output did not parse; `written` are those that the model wrote.
    `problem` says why an edit is a draft, which cannot be approved: it names the field that breaks the schema.
    `verification` names the model that verified this text, with its measured precision; None for edits and unverified
    texts.
    """

    job_id: UUID
    tenant: str
    kind: str
    state: JobState
    review: ReviewState | None
    version: int
    attempt: int
    deadline: datetime | None
    finished_at: datetime | None
    source_key: str
    reason: str | None
    detail: str | None
    priority: int
    max_attempts: int
    max_compute_seconds: float | None
    locale: str | None
    written: dict[str, Any] | None
    text: str | None
    body: dict[str, Any] | None
    problem: str | None
    edited_by: str | None
    findings: Sequence[Mapping[str, Any]]
    verification: Mapping[str, Any] | None
    request: Any
    decisions: tuple[PastDecision, ...] = ()

    @classmethod
    def of(cls, row: RowMapping, decisions: Sequence[RowMapping]) -> Self:
        """Build it from rows of `queue/current_version` and `queue/decisions`."""
        values = {field.name: row[field.name] for field in fields(cls) if field.name in row}
        review = ReviewState(row["review"]) if row["review"] else None
        past = tuple(PastDecision(**{str(name): value for name, value in each.items()}) for each in decisions)
        found = row["findings"] or ()
        bodies = {name: _in_order(row[name], row["kind"]) for name in ("written", "body")}
        more = {"state": JobState(row["state"]), "review": review, "findings": found, "decisions": past}
        return cls(**values | bodies | more)

    @property
    def artifact(self) -> Artifact | None:
        """The artifact; None for a draft, which does not fit its class. Raises `UnreadableArtifactError`."""
        found = artifact_of(self._kind, self.body, extra="ignore")
        return None if isinstance(found, str) else found

    @property
    def changes(self) -> tuple[FieldChange, ...]:
        """People's changes to the model's text."""
        old, new = (dict(leaves(values or {})) for values in (self.written, self.body))
        parts = dict.fromkeys((*old, *new))
        return tuple(
            FieldChange(part, old.get(part), new.get(part)) for part in parts if old.get(part) != new.get(part)
        )

    @property
    def source(self) -> str:
        """The text that the job is about; empty if this version cannot read its request."""
        try:
            kind = self._kind
            return kind.source(kind.parsed(self.request))
        except (UnreadableArtifactError, ValidationError):
            return ""

    def parameters(self, version: int, decision: Decision, checked: CheckedEdit | None) -> dict[str, object]:
        """Parameters of `queue/decide` for a decision on this version; an edit is already `checked`.

        Raises `InvalidDecisionError`, `UnreadableArtifactError`, and `refusal` of a job that has not succeeded.
        """
        if self.state is not JobState.SUCCEEDED:
            raise self.refusal(version, decision)
        action = Action(decision.action)
        after: ReviewState | None = ReviewState.NEEDS_EDIT if checked and checked.problem else _AFTER.get(action)
        kind = self._kind if action in {Action.APPROVE, Action.EDIT} else None
        if kind and action is Action.APPROVE and version == self.version:
            found = artifact_of(kind, self.body, extra="ignore")
            if isinstance(found, str):
                raise InvalidDecisionError("action", f"version {version} is a draft, edit it first: {found}")
        return {
            "id": self.job_id,
            "version": version,
            "before": list(
                DECIDED if action is Action.REOPEN else UNDECIDED[:-1] if action is Action.HOLD else UNDECIDED
            ),
            "after": after,
            "action": action,
            "decided_by": decision.by.strip(),
            "note": decision.note,
            **self._example(decision),
            "edit": json.dumps(checked.body) if checked else None,
            "problem": checked and checked.problem,
            "findings": json.dumps(checked.findings if checked else []),
        }

    def refusal(self, version: int, decision: Decision) -> ThothyError:
        """The reason that a decision on this version failed, from a later read."""
        made = [past for past in self.decisions if past.version == version]
        if made:
            return DecisionConflictError(
                self.job_id, version, made[-1].action, made[-1].decided_by, made[-1].decided_at
            )
        if self.state is not JobState.SUCCEEDED:
            return NothingToDecideError(self.job_id, self.state)
        if version == self.version and self.review is ReviewState.SUPERSEDED:
            return InvalidDecisionError(
                "action", f"version {version} follows a text that is another now: reopen it first"
            )
        if version == self.version and decision.action == Action.REOPEN:
            return InvalidDecisionError("action", f"version {version} is not decided: there is nothing to reopen")
        return InvalidDecisionError("version", f"{version} is not the version to decide on, which is {self.version}")

    def follow_ups(self) -> list[dict[str, Any]]:
        """The jobs that the artifact asks for, as rows of `queue/follow_ups`. Raises `InvalidDecisionError`."""
        artifact = self.artifact
        if artifact is None:
            return []
        try:
            wanted = self._kind.follow_ups(self._kind.parsed(self.request), artifact)
            rows = [follow_up_row(self, canonical(each)) for each in wanted]
        except Exception as error:
            raise InvalidDecisionError("action", f"the follow-ups cannot be made: {error!r}") from error
        late = self.deadline is not None and self.deadline <= datetime.now(UTC)
        return [{**row, "deadline": None} for row in rows] if late else rows

    @property
    def id(self) -> UUID:
        """The id of the job."""
        return self.job_id

    def _example(self, decision: Decision) -> dict[str, str | None]:
        """An approved artifact as an example of the voice that it is given, or that its request asked for."""
        voice = decision.voice or (self.request or {}).get("voice")
        if decision.action != Action.APPROVE or voice is None or self.artifact is None:
            return {"voice": None, "locale": None, "example": None}
        piece = self.artifact.piece(self.request or {})
        text = "\n\n".join(filter(None, (piece.title, piece.standfirst, _CITED.sub("", plain(piece)))))
        if len(text) > MAX_EXAMPLE_CHARS:
            text = text[:MAX_EXAMPLE_CHARS].rpartition(" ")[0] + " …"
        return {"voice": voice, "locale": self.locale, "example": text}

    @property
    def _kind(self) -> registry.AnyKind:
        try:
            return registry.find(self.kind)
        except UnknownKindError as error:
            raise UnreadableArtifactError(self.job_id, str(error)) from None

    def check(self, decision: Decision) -> CheckedEdit | None:
        """The checks' findings in an edit; None for other decisions. CPU-bound. Raises `UnreadableArtifactError`."""
        return None if decision.body is None else check_edit(self._kind.name, self.request, decision.body)


def meaning_checked(verification: Mapping[str, Any] | None) -> str:
    """Whether a model has held a version against its source, and which one."""
    if verification is None:
        return "Meaning not checked: no model has held this text against its source."
    return f"Meaning checked by {verifier_named(verification)}."


def verifier_named(verification: Mapping[str, Any]) -> str:
    """The model that made a verification, and how often its doubts are right."""
    measured = "not measured"
    if at := verification.get("measured_at"):
        measured = f"doubts right in {verification['weight']:.0%}, measured {at[:10]}"
    return f"{verification.get('name') or 'a model'} ({measured})"


def leaves(value: object, part: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted paths and values of all leaf fields."""
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    inner = False
    for name, each in items:
        inner = True
        yield from leaves(each, f"{part}.{name}" if part else str(name))
    if part and not inner:
        yield part, value


def _in_order(body: object, kind: str) -> Any:  # noqa: ANN401  JSON
    """The fields as the artifact's class has them; the database does not keep their order."""
    if kind not in registry.names():
        return body
    artifact = registry.find(kind).artifact
    try:
        return _like(body, artifact.model_validate(body, extra="ignore").model_dump(mode="json"))
    except ValidationError:
        return _like(body, dict.fromkeys(artifact.model_fields))


def _like(value: Any, model: Any) -> Any:  # noqa: ANN401  JSON
    if isinstance(value, Mapping) and isinstance(model, Mapping):
        names = [*(name for name in model if name in value), *(name for name in value if name not in model)]
        return {name: _like(value[name], model.get(name)) for name in names}
    if isinstance(value, list) and isinstance(model, list):
        return [_like(each, model[place] if place < len(model) else None) for place, each in enumerate(value)]
    return value


def _check_line(field: str, value: object, limit: int) -> None:
    if not isinstance(value, str) or not value.strip():
        raise InvalidDecisionError(field, "is empty" if value == "" else f"{value!r} is not a name")
    _check_text(field, value, limit)
    if not value.isprintable():
        raise InvalidDecisionError(field, "must be one line, without control characters")


def _check_text(field: str, value: object, limit: int) -> None:
    if not isinstance(value, str):
        raise InvalidDecisionError(field, f"{value!r} is not text")
    if len(value) > limit:
        raise InvalidDecisionError(field, f"has {len(value):,} characters; the limit is {limit:,}")
    try:
        check_encodable(value)
    except PydanticCustomError as error:
        raise InvalidDecisionError(field, str(error)) from None


def _check_body(body: object) -> None:
    if not isinstance(body, Mapping):
        raise InvalidDecisionError("body", "must be an object with the fields of the artifact")
    try:
        for text in strings_in(body):
            check_encodable(text)
        size = len(json.dumps(body, allow_nan=False))
    except (PydanticCustomError, TypeError, ValueError) as error:
        raise InvalidDecisionError("body", str(error)) from None
    if size > MAX_EDIT_CHARS:
        raise InvalidDecisionError("body", f"has {size:,} characters as JSON; the limit is {MAX_EDIT_CHARS:,}")
