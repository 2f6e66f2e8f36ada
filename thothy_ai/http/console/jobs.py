"""Jobs: the list with its filters, changes of many at once, and one job in full.

The page's address holds the filter, so that it can be bookmarked and sent. Before any change, the page states how many
jobs it affects, even for all that match.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from sqlalchemy import Engine
from starlette.datastructures import FormData, QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from thothy_ai.admin.filters import JobFilter
from thothy_ai.admin.job_watch import JobSnapshot, JobWatch, why_it_waits
from thothy_ai.admin.jobs import (
    BATCH,
    HOUR,
    JobList,
    cancel,
    change,
    jobs_of,
    open_jobs,
    redrive,
    show_job,
    standing_of,
)
from thothy_ai.db.states import TERMINAL, JobState
from thothy_ai.errors import DatabaseError, UnknownJobError
from thothy_ai.http.console.readings import READ_SECONDS
from thothy_ai.http.console.rows import MAX_NEWER, SharedRows, ShownJobs
from thothy_ai.http.console.sessions import Viewer
from thothy_ai.http.console.site import HEADERS, ROOT, Site, action_in, beats, is_whole, span_in
from thothy_ai.http.errors import ApiError
from thothy_ai.http.following import JobFollowers
from thothy_ai.http.openai.batches import PREFIX
from thothy_ai.plans.advance import PlanError, PlannedJob, PlanStep
from thothy_ai.queue.changes import Change
from thothy_ai.queue.live import TextPiece

PAGE = 50  # jobs
MAX_MATCHING = 1_000_000  # jobs per change
MAX_OUTPUTS = 50
MAX_LINE = 300  # characters of an error in a list
MAX_ERRORS = 5  # that are shown in full
MAX_RECORDED = 1_000  # jobs recorded per change
PRIORITY, MAX_PRIORITY = re.compile("-?[0-9]{1,3}"), 100
MAX_SHOWN_CHARS = 20_000  # of a live text
ACTIONS = {"cancel": "Cancel", "retry": "Queue again", "priority": "Change the priority of"}
DONE = {"cancel": "cancelled", "retry": "queued again", "priority": "given another priority"}
CHANGING = ("id", "state", "reason", "attempt", "priority", "finished_at")  # of a listed job
RECORDED = {"cancel": "cancel jobs", "retry": "queue jobs again", "priority": "change the priority of jobs"}
RETRYABLE = (JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED)
CHANGEABLE = {
    "cancel": frozenset(JobState) - TERMINAL,
    "retry": frozenset(RETRYABLE),
    "priority": frozenset({JobState.QUEUED, JobState.DISPATCHED}),
}
FIELDS = ("kind", "key", "source", "model", "reason", "tenant")


class JobPages:
    """Owns the followers of the shown jobs."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._rows = SharedRows(site)
        self.followers = JobFollowers(site.settings, site.database)
        self.routes = [
            site.page("/jobs", self.list_),
            site.page("/jobs/events", self.list_events),
            site.action("/jobs/ask", self.ask),
            site.action("/jobs/change", self.change),
            site.page("/jobs/{id:uuid}", self.show),
            site.page("/jobs/{id:uuid}/events", self.events),
            site.page("/jobs/{id:uuid}/prompt", self.prompt),
        ]

    async def list_(self, request: Request, viewer: Viewer) -> Response:
        given, wrong, looked, after = request.query_params, None, None, None
        found: list[dict[str, Any]] = []
        try:
            listed, after = list_of(given, viewer), _id_in(given, "after")
        except ApiError as error:
            wrong = str(error)
        else:
            found, looked = await self._site.read(lambda: listed.look(self._site.database, after=after, limit=PAGE))
        query = urlencode([(name, value) for name, value in parse_qsl(request.url.query) if name != "after" and value])
        shown = urlencode({"shown": ",".join(job["id"].hex for job in found), "top": int(after is None)})
        return self._site.render(
            request,
            viewer,
            "jobs.html",
            200 if wrong is None else 400,
            wrong=wrong,
            jobs=found,
            given=given,
            wanted_states=given.getlist("state"),
            states=[state.value for state in JobState],
            query=query,
            more=f"{query}&after={looked}" if looked is not None else None,
            full=len(found) == PAGE,
            first=after is None,
            live=f"{query}&{shown}",
        )

    async def list_events(self, request: Request, viewer: Viewer) -> Response:
        """The rows of a list as they change, and how many jobs have come since."""
        try:
            ids = [UUID(each) for each in request.query_params.get("shown", "").split(",") if each][:PAGE]
        except ValueError:
            raise ApiError(400, "shown: expected ids of jobs", code="invalid_value") from None
        listed = list_of(request.query_params, viewer)
        query = [(name, value) for name, value in parse_qsl(request.url.query) if name not in {"shown", "top", "after"}]
        page = ShownJobs(tuple(ids), listed if request.query_params.get("top") == "1" else None)
        return await self._site.stream(request, viewer, self._list_parts(viewer, page, urlencode(query)))

    async def _list_parts(self, viewer: Viewer, page: ShownJobs, query: str) -> AsyncIterator[str | None]:
        shown: list[tuple[object, ...]] = []
        newer = 0
        with self._rows.shown(page):
            async for _ in beats():
                jobs = [job for job in self._rows.rows(page.ids) if viewer.sees(job["tenant"])]
                states = [tuple(job[name] for name in CHANGING) for job in jobs]
                part = ""
                if jobs and states != shown:
                    part, shown = self._site.fragment("jobs_part.html", viewer=viewer, jobs=jobs), states
                if page.newer != newer:
                    newer = page.newer
                    part += self._site.fragment("jobs_newer.html", newer=newer, most=MAX_NEWER, query=query)
                yield part or None

    async def ask(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        """Say what a change would do, and ask for confirmation."""
        action, every = action_in(form, ACTIONS), form.get("which") == "all"
        chosen = await self._chosen(viewer, form, action)
        return self._site.render(
            request,
            viewer,
            "jobs_ask.html",
            action=action,
            verb=ACTIONS[action],
            done=DONE[action],
            number=len(chosen),
            ticked=None if every else len(set(form.getlist("id"))),
            ids=[] if every else list(chosen),
            query=str(form.get("query", "")),
            priority=_priority_in(form) if form.get("priority") else 0,
        )

    async def change(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        action = action_in(form, ACTIONS)
        priority = _priority_in(form) if action == "priority" else None
        chosen = await self._chosen(viewer, form, action)
        said, query = str(form.get("number", "")), str(form.get("query", ""))
        confirmed = int(said) if said.isdecimal() and len(said) < 10 else 0
        if len(chosen) > confirmed:
            raise ApiError(
                409, f"{len(chosen):,} jobs match by now, more than you have confirmed: ask again", code="changed"
            )
        ids, database = list(chosen), self._site.database
        target = str(ids[0]) if len(ids) == 1 else f"{len(ids):,} jobs"
        async with self._site.recorded(viewer, RECORDED[action], target) as record:
            before = await self._site.read(lambda: standing_of(database, ids[:MAX_RECORDED]))
            record.before = {"number": len(ids), "states": Counter(chosen.values()), "jobs": before}
            record.before |= {"recorded": len(before)} if len(before) < len(ids) else {}
            record.before |= {"filter": query} if form.get("which") == "all" else {}
            number = await self._site.read(lambda: _changed(database, ids, viewer, action, priority))
            record.after = {"jobs": number} | ({} if priority is None else {"priority": priority})
        left = f"; {confirmed - number:,} had changed meanwhile and were left" if number < confirmed else ""
        says = f"{number:,} {'job was' if number == 1 else 'jobs were'} {DONE[action]}{left}"
        return self._site.done(request, f"{ROOT}/jobs?{query}" if query else f"{ROOT}/jobs", says)

    async def _chosen(self, viewer: Viewer, form: FormData, action: str) -> dict[UUID, str]:
        """The jobs that a form selects, and their states: the ticked ones, or all that match its filter, if the viewer
        may see them and the action can change them.
        """
        if form.get("which") == "all":
            listed = list_of(QueryParams(str(form.get("query", ""))), viewer)
            return await self._site.read(lambda: _matching(self._site.database, listed, action))
        try:
            ids = [UUID(str(given)) for given in form.getlist("id")]
        except ValueError:
            raise ApiError(400, "id: expected the id of a job", code="invalid_value") from None
        if not ids:
            raise ApiError(400, "no job is chosen: tick some, or choose all that match", code="nothing_chosen")
        jobs = await self._site.read(lambda: jobs_of(self._site.database, ids))
        return {
            job["id"]: job["state"] for job in jobs if viewer.sees(job["tenant"]) and job["state"] in CHANGEABLE[action]
        }

    async def show(self, request: Request, viewer: Viewer) -> Response:
        job = await self._seen(request, viewer)
        why = await self._site.read(lambda: self._waits(job["id"]))
        return self._site.render(
            request,
            viewer,
            "job.html",
            **self._values(job, why),
            request_json=json.dumps(job["request"], ensure_ascii=False, indent=2, default=str),
            commands=_commands(job),
        )

    async def prompt(self, request: Request, viewer: Viewer) -> Response:
        """The messages of a job's first call, as its kind makes them for a large model."""
        job = await self._seen(request, viewer)
        try:
            step = await self._site.judges.advance(PlannedJob(job["kind"], job["request"]), (), None)
        except PlanError as error:
            raise ApiError(409, f"there is no prompt: {error}", code="no_prompt") from None
        calls = step.calls if isinstance(step, PlanStep) else ()
        messages = [(message.role, message.content) for call in calls[:1] for message in call.messages]
        if calls and calls[0].api is not None:  # written as a request to OpenAI's API
            messages = [("request", json.dumps(calls[0].api.body, ensure_ascii=False, indent=2))]
        return HTMLResponse(
            self._site.fragment("job_prompt.html", messages=messages, more=len(calls) - 1), 200, HEADERS
        )

    async def _seen(self, request: Request, viewer: Viewer) -> dict[str, Any]:
        job_id: UUID = request.path_params["id"]
        job: dict[str, Any] | None = await self._site.read(lambda: self._job(job_id))
        if job is None or not viewer.sees(job["tenant"]):
            raise ApiError(404, f"there is no job {job_id}; it may have been deleted", code="not_found")
        return job

    def _values(self, job: Mapping[str, Any], why: str | None) -> dict[str, Any]:
        """The values for the live part of a job's page."""
        price = self._site.settings.price_per_compute_hour
        return {
            "job": job,
            "why": why,
            "open": JobState(job["state"]) not in TERMINAL,
            "retryable": job["state"] in RETRYABLE,
            "steps": _steps(job),
            "attempts": [_attempt(each, price) for each in job["attempts"]],
            "outputs": job["artifacts"][:MAX_OUTPUTS],
            "line": MAX_LINE,
            "errors": _long_errors(job),
            "price": None if price is None else job["cost"].price(price),
            "currency": self._site.settings.currency,
        }

    async def events(self, request: Request, viewer: Viewer) -> Response:
        """The stream of one job: the parts of its page as they change, and its text."""
        job = await self._seen(request, viewer)
        why = await self._site.read(lambda: self._waits(job["id"]))
        return await self._site.stream(request, viewer, self._parts(viewer, job, why, whole=is_whole(request)))

    async def _parts(
        self, viewer: Viewer, job: dict[str, Any], why: str | None, *, whole: bool
    ) -> AsyncIterator[str | None]:
        job_id, shown, text, of = job["id"], (job["state"], job["attempt"]), "", 0
        context = {"viewer": viewer} | ({"whole": True} if whole else {})
        yield self._site.fragment("job_part.html", **context, **self._values(job, why))  # the job may have changed
        while True:
            try:
                async with aclosing(self.followers.follow(job_id, viewer.identity)) as steps:
                    async for step in steps:
                        if isinstance(step, TextPiece):
                            text = step.text if step.attempt != of else text[: step.at] + step.text
                            of = step.attempt
                            yield self._site.fragment("job_text.html", text=text[-MAX_SHOWN_CHARS:], attempt=of)
                            continue
                        now, waits = (step.state, step.attempt), _why(step)
                        if now != shown or waits != why:
                            shown, why = now, waits
                            again = await self._site.read(lambda: self._job(job_id))
                            job = again or job
                            yield self._site.fragment("job_part.html", **context, **self._values(job, why))
                        else:
                            yield None
            except (UnknownJobError, DatabaseError, ApiError):  # the last: too much is followed already
                yield None
            with self._rows.shown(ShownJobs((job_id,))):  # it has ended, and may be queued again
                await asyncio.sleep(READ_SECONDS)
                async for _ in beats():
                    rows = self._rows.rows((job_id,))
                    if rows and rows[0]["finished_at"] is None:
                        break
                    yield None

    def _waits(self, job_id: UUID) -> str | None:
        try:
            return _why(JobWatch(self._site.database, job_id).look())
        except UnknownJobError:
            return None

    def _job(self, job_id: UUID) -> dict[str, Any] | None:
        try:
            return show_job(self._site.database, job_id)
        except UnknownJobError:
            return None


def filter_of(query: QueryParams, viewer: Viewer) -> JobFilter:
    """The jobs that an address selects, among those visible to the viewer."""
    given = {name: query.get(name, "").strip() or None for name in FIELDS}
    states = query.getlist("state")
    for state in states:
        if state not in set(JobState):
            raise ApiError(400, f"state: {state!r} is not one of {', '.join(JobState)}", code="invalid_value")
    of_api = query.get("batch", "").strip().startswith(PREFIX)
    batch = _id_in(query, "batch", PREFIX)
    wanted = JobFilter(
        states=tuple(states),
        **given,
        parent=_id_in(query, "parent"),
        batch=None if of_api else batch,
        batch_id=batch if of_api else None,
    )
    return wanted if viewer.tenant is None else replace(wanted, tenant=viewer.tenant)


def list_of(query: QueryParams, viewer: Viewer) -> JobList:
    """The list that an address selects, of jobs visible to the viewer."""
    return JobList(filter_of(query, viewer), *span_in(query))


def _id_in(query: QueryParams, name: str, prefix: str = "") -> UUID | None:
    """The id under a name; `ApiError` for an invalid one: ignoring it would let everything through the filter."""
    if not (given := query.get(name, "").strip()):
        return None
    try:
        return UUID(given.removeprefix(prefix))
    except ValueError:
        raise ApiError(400, f"{name}: {given!r} is not an id", code="invalid_value") from None


def _priority_in(form: FormData) -> int:
    given = str(form.get("priority", "")).strip()
    if not PRIORITY.fullmatch(given) or abs(int(given)) > MAX_PRIORITY:
        says = f"priority: expected a whole number from -{MAX_PRIORITY} to {MAX_PRIORITY}"
        raise ApiError(400, says, code="invalid_value")
    return int(given)


def _matching(engine: Engine, listed: JobList, action: str) -> dict[UUID, str]:
    """The jobs that match and that an action can change, and their states."""
    if action != "retry":
        jobs = open_jobs(engine, listed.wanted, since=listed.since, until=listed.until)
        found = {job.id: job.state for job in jobs if job.state in CHANGEABLE[action]}
        if len(found) > MAX_MATCHING:
            says = f"{len(found):,} jobs match, and one change is about {MAX_MATCHING:,} at most: filter them further"
            raise ApiError(400, says, code="too_many")
        return found
    states = [state for state in RETRYABLE if not listed.wanted.states or state in listed.wanted.states]
    retryable, found = replace(listed, wanted=replace(listed.wanted, states=tuple(states))), {}
    after: UUID | None = None
    while states and len(found) < MAX_MATCHING:
        page = retryable.page(engine, after=after, limit=BATCH)
        found |= {job["id"]: job["state"] for job in page}
        if len(page) < BATCH:
            break
        after = page[-1]["id"]
    return found


def _changed(engine: Engine, ids: Sequence[UUID], viewer: Viewer, action: str, priority: int | None) -> int:
    if priority is not None:
        return sum(change(engine, ids, Change(priority=priority)).values())
    if action == "cancel":
        return len(cancel(engine, ids))
    return len(redrive(engine, ids, note=f"by {viewer.signature} in the console"))


def _why(job: JobSnapshot) -> str | None:
    """Why a job waits, if it does."""
    clock = lambda moment: f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"  # noqa: E731
    return why_it_waits(job, job.waiting, clock)[1] if job.waiting is not None else None


def _steps(job: Mapping[str, Any]) -> list[tuple[datetime, str, str]]:
    """The history of a job, in order: the time, the event, and the detail."""
    steps = [(job["enqueued_at"], "enqueued", "")]
    for each in job["attempts"]:
        said = ": ".join(part for part in (each["reason"], each["detail"]) if part)
        steps.append((each["started_at"], f"attempt {each['attempt']} started", f"on {each['worker']}"))
        steps.append((each["finished_at"], f"attempt {each['attempt']} {each['outcome']}", said))
    events = (event for event in job["events"] if event["event"] not in {"rejected", "dead"})  # told by attempts
    steps += [(event["at"], event["event"], event["detail"] or "") for event in events]
    if job["finished_at"] is not None:
        steps.append((job["finished_at"], job["state"], job["detail"] or ""))
    return sorted(steps, key=lambda step: step[0])


def _long_errors(job: Mapping[str, Any]) -> list[str]:
    """The latest distinct errors that do not fit in a line."""
    details = [job["detail"], *(each["detail"] for each in reversed(job["attempts"]))]
    return list(dict.fromkeys(each for each in details if each and len(each) > MAX_LINE))[:MAX_ERRORS]


def _attempt(attempt: Mapping[str, Any], per_hour: float | None) -> dict[str, Any]:
    """The values that are shown of an attempt, with its price."""
    took = (attempt["finished_at"] - attempt["started_at"]).total_seconds()
    return {**attempt, "took": took, "price": None if per_hour is None else attempt["device_seconds"] / HOUR * per_hour}


def _commands(job: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The commands for this job in a terminal and in Python."""
    job_id = job["id"]
    shell = "\n".join(f"thothy jobs {verb} {job_id}" for verb in ("show", "watch", "cancel"))
    python = f"""\
from thothy_ai import Producer

with Producer.from_env() as producer:
    job = producer.job("{job_id}")
    print(job.state, job.result())"""
    return [("Shell", shell), ("Python", python)]
