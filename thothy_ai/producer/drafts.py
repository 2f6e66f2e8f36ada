"""From requests to rows: requests are checked, digested and given ids before anything reaches the database. Pure."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from pydantic import ValidationError
from uuid_utils.compat import uuid7

from thothy_ai.errors import ConfigError, EntryError, IdempotencyConflictError, InvalidJobError
from thothy_ai.jobs import Request, registry
from thothy_ai.jobs.api.kind import A
from thothy_ai.jobs.api.requests import named_brief
from thothy_ai.jobs.registry import AnyKind, KindError, UnknownKindError
from thothy_ai.queue import texts
from thothy_ai.queue.canonical import canonical, invalid
from thothy_ai.queue.changes import require_times, require_whole
from thothy_ai.settings import Settings

MAX_KEY_LENGTH = 500
# Limits of one statement: its number of jobs, and the size of its requests, exceeded by at most one request. Postgres
# takes 1 GB at once, and must answer in time. All statements of a call are one transaction.
STATEMENT_JOBS = 10_000
STATEMENT_CHARS = 16_000_000
MAX_CALL_CHARS = 4_000_000_000  # all requests of a call are in memory until the last one is checked
MODEL_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")  # as for THOTHY_MODEL_NAME


@dataclass(frozen=True, slots=True)
class EnqueueOptions:
    """How to queue a request. Times carry a time zone.

    Higher priorities go first, and pass jobs of lower priority that wait in Redis, a worker or the engine; a point is
    worth a day of waiting, so that no job starves. Among jobs of equal priority, the nearer deadline goes first.
    Enqueueing the same request again with the same `idempotency_key` returns the first job. A job is dead once its
    attempts have used `max_compute_seconds` of engine time in total. `model` is the name of a model or an adapter, or
    an alias: the job runs on an engine that serves it, and waits while there is none. Default: the kind's, otherwise
    any.
    """

    priority: int = 0
    deadline: datetime | None = None
    not_before: datetime | None = None
    idempotency_key: str | None = None
    max_attempts: int | None = None
    max_compute_seconds: float | None = None
    model: str | None = None


Entry = Request[A] | tuple[Request[A], EnqueueOptions]


@dataclass(frozen=True, slots=True)
class Draft:
    """One job, ready to be inserted. `body` is its canonical request; `digest` covers tenant, kind and request.

    `entry` is its index in `enqueue_many`. `existed`: an earlier job has its idempotency key, and `id` is that job's.
    `unbriefed` is the request while its brief is only the name of a stored one.
    """

    id: UUID
    kind: str
    body: texts.StoredRequest
    digest: str
    source_key: str
    options: EnqueueOptions
    entry: int | None = None
    existed: bool = False
    unbriefed: Request | None = None


def load_kinds(settings: Settings) -> None:
    """Register the kinds named in the settings. Raises `ConfigError`."""
    try:
        registry.load_extra(settings.kinds)
    except KindError as error:
        raise ConfigError(f"THOTHY_KINDS: {error}") from None


def parse_request(kind: str, fields: Mapping[str, Any]) -> Request:
    """A request from plain values, as a file or a command line gives them. Raises `InvalidJobError`."""
    try:
        return validated(registry.find(kind), fields)
    except UnknownKindError as error:
        raise InvalidJobError("kind", str(error)) from None


def validated(kind: AnyKind, fields: Mapping[str, Any]) -> Request:
    """The kind's request with these fields. Raises `InvalidJobError`, naming the first invalid field."""
    try:
        request: Request = kind.request.model_validate(fields)
    except ValidationError as error:
        raise invalid(error, kind.request) from None
    return request


def draft_all(entries: Iterable[Entry[A]], settings: Settings) -> list[Draft]:
    """Drafts of requests, or of (request, options).

    A text that several requests have is kept once. Raises `InvalidJobError` for the first invalid entry, or the one
    with which the call is too large, and `IdempotencyConflictError` for a key that two entries with different requests
    share.
    """
    now = datetime.now(UTC)
    drafts: list[Draft] = []
    known: dict[str, str] = {}  # texts by digest
    size = 0  # characters of the requests, each text counted once
    first: dict[str, int] = {}  # the first entry of each key
    for number, entry in enumerate(entries):
        texts_before = len(known)
        try:
            match entry:
                case (Request() as request, EnqueueOptions() as options):
                    new = draft(request, options, settings, now, number, known)
                case Request():
                    new = draft(entry, EnqueueOptions(), settings, now, number, known)
                case _:
                    raise InvalidJobError("request", "must be a request, or a pair of a request and its EnqueueOptions")
            drafts.append(new)
            size += len(new.body.request) + (len(new.body.text or "") if len(known) > texts_before else 0)
            if size > MAX_CALL_CHARS:
                raise InvalidJobError("request", f"the call has more than {MAX_CALL_CHARS:,} characters; divide it")
            key = new.options.idempotency_key
            if key is not None and drafts[first.setdefault(key, number)].digest != new.digest:
                raise IdempotencyConflictError(key, other=first[key])
        except EntryError as error:
            raise error.at(number) from None
    return drafts


def draft(
    request: Request,
    options: EnqueueOptions,
    settings: Settings,
    now: datetime,
    entry: int | None = None,
    known: dict[str, str] | None = None,
) -> Draft:
    """A job for this request; `known` as for `texts.stored`. Raises `InvalidJobError`, naming the field."""
    named = named_brief(request)
    body = canonical(request, by_name=named is not None)
    return Draft(
        id=uuid7(),
        kind=body.kind,
        body=texts.stored(body.request, known),
        digest=body.digest(settings.tenant),
        source_key=body.source_key,
        options=_checked(options, settings, body.model, now),
        entry=entry,
        unbriefed=request if named else None,
    )


def portions(drafts: Iterable[Draft]) -> Iterator[list[Draft]]:
    """The drafts per statement, in the order of locking, so that calls with the same keys never deadlock."""
    part: list[Draft] = []
    size, digests = 0, set[str | None]()
    for draft in sorted(drafts, key=lambda each: each.options.idempotency_key or ""):
        part.append(draft)
        size += len(draft.body.request) + (0 if draft.body.digest in digests else len(draft.body.text or ""))
        digests.add(draft.body.digest)
        if size >= STATEMENT_CHARS or len(part) == STATEMENT_JOBS:
            yield part
            part, size, digests = [], 0, set()
    if part:
        yield part


def insertion(drafts: Sequence[Draft], tenant: str, batch: UUID | None = None) -> tuple[str, dict[str, Any]]:
    """The statement that inserts these jobs, and its parameters: texts, which every driver can send."""
    jobs = json.dumps([_row(draft) for draft in drafts], ensure_ascii=False)
    given = {"tenant": tenant, "batch_id": str(batch) if batch else None, "jobs": jobs}
    if long := texts.shared(draft.body for draft in drafts):
        return "producer/enqueue_texts", given | {"texts": json.dumps(long, ensure_ascii=False)}
    return "producer/enqueue", given


def _row(draft: Draft) -> dict[str, Any]:
    """A job as the statement's parameters; missing values are NULL."""
    options, body = draft.options, draft.body
    row = {
        "id": str(draft.id),
        "kind": draft.kind,
        "priority": options.priority,
        "deadline": options.deadline and options.deadline.astimezone(UTC).isoformat(),
        "not_before": options.not_before and options.not_before.astimezone(UTC).isoformat(),
        "source_key": draft.source_key,
        "idempotency_key": options.idempotency_key,
        "digest": draft.digest,
        "max_attempts": options.max_attempts,
        "max_compute_seconds": options.max_compute_seconds,
        "model": options.model,
        "request": body.request,
        "text_field": body.field,
        "text_digest": body.digest,
    }
    return {name: value for name, value in row.items() if value is not None}


def taken_keys(drafts: Sequence[Draft], taken: Sequence[str]) -> list[str]:
    """Keys of the drafts that were not inserted."""
    refused = set(taken)
    keys = {draft.options.idempotency_key for draft in drafts if str(draft.id) in refused}
    return sorted(key for key in keys if key is not None)


def settle(drafts: Sequence[Draft], rows: Iterable[Any]) -> list[Draft]:
    """The drafts with the ids that their jobs have. `rows` are those of `producer/jobs_by_key`: the first jobs.

    Raises `IdempotencyConflictError` when the first job has a different request.
    """
    holders = {row["idempotency_key"]: (UUID(row["id"]), row["digest"]) for row in rows}
    settled = []
    for draft in drafts:
        key = draft.options.idempotency_key or ""
        job_id, digest = holders.get(key, (draft.id, draft.digest))
        if digest != draft.digest:
            raise IdempotencyConflictError(key, job_id=job_id).at(draft.entry)
        settled.append(draft if job_id == draft.id else replace(draft, id=job_id, existed=True))
    return settled


def _checked(options: EnqueueOptions, settings: Settings, usual: str | None, now: datetime) -> EnqueueOptions:
    model = usual if options.model is None else options.model
    attempts = settings.max_attempts if options.max_attempts is None else options.max_attempts
    require_whole("priority", options.priority, -100, 100)
    require_whole("max_attempts", attempts, 1, 32767)
    most: Any = options.max_compute_seconds
    number = isinstance(most, int | float) and not isinstance(most, bool)
    if most is not None and not (number and 0 < most < math.inf):
        raise InvalidJobError("max_compute_seconds", f"{most!r} is not a number above 0")
    require_times(options.deadline, options.not_before, now)
    require_key(options.idempotency_key)
    if model is not None:
        check_model_name("model", model)
    return replace(options, max_attempts=attempts, model=model)


def check_model_name(field: str, name: object) -> None:
    """Raise `InvalidJobError` for what cannot be the name of a model or an alias."""
    if not isinstance(name, str) or not MODEL_NAME.fullmatch(name):
        raise InvalidJobError(
            field, f"{name!r} is not a name of at most 100 letters, digits, dots, hyphens and underscores"
        )


def require_key(key: object) -> None:
    """Raise `InvalidJobError` for what cannot be an idempotency key."""
    if key is None:
        return
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_LENGTH:
        raise InvalidJobError("idempotency_key", f"must be text of 1 to {MAX_KEY_LENGTH} characters")
    if "\0" in key or not key.isprintable():
        raise InvalidJobError("idempotency_key", "holds characters that cannot be printed")
