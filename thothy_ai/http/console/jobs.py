"""Jobs: the list with its filters, changes of many at once, and one job in full.

A filter is the page's address, so that it can be kept and sent. A change states how many jobs it is about before it is
made, also one of all that match.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from sqlalchemy import Engine
from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from thothy_ai.admin.filters import JobFilter
from thothy_ai.admin.job_watch import JobWatch, why_it_waits
from thothy_ai.admin.jobs import BATCH, cancel, change, list_jobs, open_jobs, redrive, show_job, tenant_jobs
from thothy_ai.db.states import TERMINAL, JobState
from thothy_ai.errors import InvalidJobError, UnknownJobError
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import HEADERS, ROOT, SESSION_CHECK_SECONDS, Site
from thothy_ai.http.errors import ApiError
from thothy_ai.queue.changes import Change
from thothy_ai.queue.live import TextWatcher

PAGE = 50  # jobs
MAX_MATCHING = 1_000_000  # jobs that one change is about
MAX_OUTPUTS = 50
MAX_RECORDED = 1_000  # ids of a change
MAX_SHOWN_CHARS = 20_000  # of one output: a page is rendered on the door's event loop
MAX_WATCHERS = 64  # live texts at once, each of which holds a thread
LOOK_SECONDS = 0.5
ACTIONS = {"cancel": "Cancel", "retry": "Queue again", "priority": "Change the priority of"}
RETRYABLE = (JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED)
FIELDS = ("kind", "key", "source", "model", "reason", "tenant")


class JobPages:
    """Owns the threads that follow live texts."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._watchers = ThreadPoolExecutor(MAX_WATCHERS, thread_name_prefix="console-watcher")
        self._watching = 0
        self.routes = [
            site.page("/jobs", self._list),
            site.action("/jobs/ask", self._ask),
            site.action("/jobs/change", self._change),
            site.page("/jobs/{id:uuid}", self._show),
            site.page("/jobs/{id:uuid}/events", self._events),
        ]

    def close(self) -> None:
        """Let the live texts end."""
        self._watchers.shutdown(wait=False, cancel_futures=True)

    async def _list(self, request: Request, viewer: Viewer) -> Response:
        wanted, after = filter_of(request.query_params, viewer), _id_in(request.query_params, "after")
        found = await self._site.read(lambda: list_jobs(self._site.database, wanted, after=after, limit=PAGE + 1))
        query = [(name, value) for name, value in parse_qsl(request.url.query) if name != "after" and value]
        more = urlencode([*query, ("after", str(found[PAGE - 1]["id"]))]) if len(found) > PAGE else None
        return self._site.render(
            request,
            viewer,
            "jobs.html",
            jobs=found[:PAGE],
            wanted=wanted,
            states=[state.value for state in JobState],
            query=urlencode(query),
            more=more,
            first=after is None,
        )

    async def _ask(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        """Say what a change would do, and ask for it."""
        action, query = _action_in(form), str(form.get("query", ""))
        ids = await self._chosen(viewer, form, action)
        return self._site.render(
            request,
            viewer,
            "jobs_ask.html",
            action=action,
            verb=ACTIONS[action],
            number=len(ids),
            all_matching=form.get("which") == "all",
            ids=[] if form.get("which") == "all" else ids,
            query=query,
            priority=_priority_in(form) if action == "priority" else None,
        )

    async def _change(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        action = _action_in(form)
        ids = await self._chosen(viewer, form, action)
        said, query = str(form.get("number", "")), str(form.get("query", ""))
        if len(ids) > (int(said) if said.isdecimal() and len(said) < 10 else 0):
            raise ApiError(
                409, f"{len(ids):,} jobs match by now, more than you have confirmed: ask again", code="changed"
            )
        all_matching = form.get("which") == "all"
        target = str(ids[0]) if len(ids) == 1 else f"{len(ids):,} jobs"
        async with self._site.recorded(viewer, f"{action} jobs", target) as record:
            number = await self._site.read(lambda: _changed(self._site.database, action, ids, form, viewer))
            record.before = {"filter": query} if all_matching else {"ids": [str(each) for each in ids[:MAX_RECORDED]]}
            record.after = {"jobs": number} | ({"priority": _priority_in(form)} if action == "priority" else {})
        left = f"; {len(ids) - number:,} had changed meanwhile and were left" if number < len(ids) else ""
        done = {"cancel": "cancelled", "retry": "queued again", "priority": "given another priority"}[action]
        says = f"{number:,} {'job was' if number == 1 else 'jobs were'} {done}{left}"
        return self._site.done(request, f"{ROOT}/jobs?{query}" if query else f"{ROOT}/jobs", says)

    async def _chosen(self, viewer: Viewer, form: FormData, action: str) -> list[UUID]:
        """The jobs that a form is about: those ticked that the viewer sees, or all that match its filter."""
        if form.get("which") == "all":
            wanted = filter_of(QueryParams(str(form.get("query", ""))), viewer)
            return await self._site.read(lambda: _matching(self._site.database, wanted, action))
        try:
            ids = [UUID(str(given)) for given in form.getlist("id")]
        except ValueError:
            raise ApiError(400, "id: expected the id of a job", code="invalid_value") from None
        if not ids:
            raise ApiError(400, "no job is chosen: tick some, or choose all that match", code="nothing_chosen")
        if (tenant := viewer.tenant) is not None:
            ids = await self._site.read(lambda: tenant_jobs(self._site.database, tenant, ids))
        return ids

    async def _show(self, request: Request, viewer: Viewer) -> Response:
        job_id: UUID = request.path_params["id"]
        job = await self._site.read(lambda: self._job(job_id))
        if job is None or not viewer.sees(job["tenant"]):
            raise ApiError(404, f"there is no job {job_id}; it may have been deleted", code="not_found")
        why = await self._site.read(lambda: _why(self._site.database, job_id))
        price = self._site.settings.price_per_compute_hour
        return self._site.render(
            request,
            viewer,
            "job.html",
            job=job,
            why=why,
            open=JobState(job["state"]) not in TERMINAL,
            retryable=job["state"] in RETRYABLE,
            steps=_steps(job),
            outputs=[{**each, "text": _shortened(each["text"])} for each in job["artifacts"][:MAX_OUTPUTS]],
            price=None if price is None else job["cost"].price(price),
            currency=self._site.settings.currency,
            request_json=_pretty(job["request"]),
            commands=_commands(job),
        )

    async def _events(self, request: Request, viewer: Viewer) -> Response:
        """What a running job writes, and a word once its state has changed."""
        job_id: UUID = request.path_params["id"]
        job = await self._site.read(lambda: self._job(job_id))
        if job is None or not viewer.sees(job["tenant"]):
            raise ApiError(404, f"there is no job {job_id}", code="not_found")
        if self._watching >= MAX_WATCHERS:
            raise ApiError(429, f"{MAX_WATCHERS} jobs are being watched already", code="too_many_requests")
        headers = {**HEADERS, "x-accel-buffering": "no"}
        stream = self._watched(request, job_id, JobState(job["state"]), job["attempt"])
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _watched(self, request: Request, job_id: UUID, state: JobState, attempt: int) -> AsyncIterator[str]:
        loop, live = asyncio.get_running_loop(), TextWatcher(self._site.settings, job_id)
        watch, text, of = JobWatch(self._site.database, job_id), "", 0
        self._watching += 1
        looked_at = time.monotonic()
        try:
            while not self._site.ending:
                if time.monotonic() - looked_at > SESSION_CHECK_SECONDS:
                    looked_at = time.monotonic()
                    if await self._site.viewer(request) is None:
                        return
                piece = await loop.run_in_executor(self._watchers, live.next, LOOK_SECONDS)
                if piece is not None:
                    text = piece.text if piece.attempt != of else text[: piece.at] + piece.text
                    of = piece.attempt
                    part = self._site.fragment("job_live.html", text=text[-MAX_SHOWN_CHARS:], attempt=of)
                    yield "".join(f"data: {line}\n" for line in part.split("\n")) + "\n"
                    continue
                try:
                    now = await self._site.read(watch.look)
                except UnknownJobError:
                    return
                if (now.state, now.attempt) != (state, attempt):
                    yield "event: changed\ndata: now\n\n"
                    return
                yield ": still here\n\n"
        finally:
            self._watching -= 1
            live.close()

    def _job(self, job_id: UUID) -> dict[str, Any] | None:
        try:
            return show_job(self._site.database, job_id)
        except UnknownJobError:
            return None


def filter_of(query: QueryParams, viewer: Viewer) -> JobFilter:
    """The jobs that an address names, of those that the viewer sees."""
    given = {name: query.get(name, "").strip() or None for name in FIELDS}
    states = query.getlist("state")
    for state in states:
        if state not in set(JobState):
            raise ApiError(400, f"state: {state!r} is not one of {', '.join(JobState)}", code="invalid_value")
    wanted = JobFilter(states=states, **given, parent=_id_in(query, "parent"), batch=_id_in(query, "batch"))
    return wanted if viewer.tenant is None else replace(wanted, tenant=viewer.tenant)


def _id_in(query: QueryParams, name: str) -> UUID | None:
    """The id under a name; ApiError for what cannot be one: without it, the filter would let everything through."""
    if not (given := query.get(name, "").strip()):
        return None
    try:
        return UUID(given)
    except ValueError:
        raise ApiError(400, f"{name}: {given!r} is not an id", code="invalid_value") from None


def _action_in(form: FormData) -> str:
    action = str(form.get("action", ""))
    if action not in ACTIONS:
        raise ApiError(400, f"action: expected one of {', '.join(ACTIONS)}", code="invalid_value")
    return action


def _priority_in(form: FormData) -> int:
    try:
        return int(str(form.get("priority", "")))
    except ValueError:
        raise ApiError(400, "priority: expected a whole number from -100 to 100", code="invalid_value") from None


def _matching(engine: Engine, wanted: JobFilter, action: str) -> list[UUID]:
    """The jobs that match and that an action can change."""
    if action != "retry":
        ids = [job.id for job in open_jobs(engine, wanted)]
        if len(ids) > MAX_MATCHING:
            says = f"{len(ids):,} jobs match, and one change is about {MAX_MATCHING:,} at most: filter them further"
            raise ApiError(400, says, code="too_many")
        return ids
    states = [state for state in RETRYABLE if not wanted.states or state in wanted.states]
    ids = []
    after: UUID | None = None
    while states and len(ids) < MAX_MATCHING:
        found = list_jobs(engine, replace(wanted, states=states), after=after, limit=BATCH)
        ids += [job["id"] for job in found]
        if len(found) < BATCH:
            break
        after = found[-1]["id"]
    return ids


def _changed(engine: Engine, action: str, ids: Sequence[UUID], form: FormData, viewer: Viewer) -> int:
    if action == "cancel":
        return len(cancel(engine, ids))
    if action == "retry":
        return len(redrive(engine, ids, note=f"by {viewer.signature} in the console"))
    try:
        return sum(change(engine, ids, Change(priority=_priority_in(form))).values())
    except InvalidJobError as error:
        raise ApiError(400, str(error), code="invalid_value") from None


def _why(engine: Engine, job_id: UUID) -> str | None:
    """Why a job waits, if it does."""
    try:
        now = JobWatch(engine, job_id).look()
    except UnknownJobError:
        return None
    clock = lambda moment: f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"  # noqa: E731
    return why_it_waits(now, now.waiting, clock)[1] if now.waiting is not None else None


def _steps(job: Mapping[str, Any]) -> list[tuple[datetime, str, str]]:
    """What happened to a job: when, what, and the detail; in order."""
    steps = [(job["enqueued_at"], "enqueued", "")]
    for each in job["attempts"]:
        said = ": ".join(part for part in (each["reason"], each["detail"]) if part)
        steps.append((each["started_at"], f"attempt {each['attempt']} started", f"on {each['worker']}"))
        steps.append((each["finished_at"], f"attempt {each['attempt']} {each['outcome']}", said))
    events = (event for event in job["events"] if event["event"] not in {"rejected", "dead"})  # told by the attempt
    steps += [(event["at"], event["event"], event["detail"] or "") for event in events]
    if job["finished_at"] is not None:
        steps.append((job["finished_at"], job["state"], job["detail"] or ""))
    return sorted(steps, key=lambda step: step[0])


def _commands(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What does the same in a terminal and in Python."""
    job_id = job["id"]
    shell = "\n".join(f"thothy jobs {verb} {job_id}" for verb in ("show", "watch", "cancel"))
    python = f"""\
from thothy_ai import Producer

with Producer.from_env() as producer:
    job = producer.job("{job_id}")
    print(job.state, job.result())"""
    return [("Shell", shell), ("Python", python)]


def _pretty(value: object) -> str:
    return _shortened(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def _shortened(text: str) -> str:
    more = len(text) - MAX_SHOWN_CHARS
    return (
        text if more <= 0 else f"{text[:MAX_SHOWN_CHARS]}\n… and {more:,} characters more: `thothy jobs show` has all"
    )
