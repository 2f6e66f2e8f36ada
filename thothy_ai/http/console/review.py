"""The editor's pages: artifacts that wait for a decision, one artifact as readers will see it, and the decision form.

Edits are saved to the database as drafts while a person types. A reloaded page, or a later session of the same person,
continues with the draft; only a decision that uses it ends it. Two people on one artifact see each other, and the one
who decides second learns who was first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from markupsafe import Markup
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from thothy_ai.admin.export.pieces import name_of, piece_of
from thothy_ai.admin.review import WaitingArtifact, current_version, decide, review_queue
from thothy_ai.admin.word_diff import DiffPart, word_diff
from thothy_ai.db.statements import statement
from thothy_ai.db.states import Action, ReviewState
from thothy_ai.errors import (
    DecisionConflictError,
    InvalidDecisionError,
    NothingToDecideError,
    UnknownJobError,
    UnreadableArtifactError,
)
from thothy_ai.http.console.sessions import Viewer, ViewerRole
from thothy_ai.http.console.site import HEADERS, ROOT, Site, cut, is_whole, visible
from thothy_ai.http.errors import ApiError
from thothy_ai.jobs import registry
from thothy_ai.jobs.publishing.html import html
from thothy_ai.producer.decisions import DECIDED, MAX_NOTE_CHARS, CurrentVersion, Decision, leaves

LISTED = 200  # artifacts that wait
MAX_KEPT = 10_000  # artifacts whose list entries are cached
MAX_SHOWN = 100_000  # characters of an artifact, its source and the draft; the rest is shown on request
NEAR = 100  # characters on either side of a change that a comparison shows
FIELD = "field:"  # begins the name of an input
NOTE = "note:"  # begins the name of a draft that is the note of a decision
NOTED = (Action.REJECT, Action.SEND_BACK)  # the actions that need a note
DONE = {
    Action.APPROVE: "approved", Action.EDIT: "edited", Action.REJECT: "rejected", Action.SEND_BACK: "sent back",
    Action.HOLD: "held", Action.REOPEN: "reopened",
}  # fmt: skip


class ReviewPages:
    """Drafts and decisions are in the database; only the list entries of the latest artifacts are cached here."""

    def __init__(self, site: Site) -> None:
        registry.names()  # loads the kinds, for which the first list would wait
        self._site = site
        self._abouts: dict[WaitingArtifact, tuple[str, int]] = {}  # title and findings never change
        piece = "/review/{id:uuid}"
        self.routes = [
            site.page("/review", self.list_),
            site.page(piece, self.show),
            site.page(f"{piece}/others", self.others),
            site.action(f"{piece}/draft", self.draft, ViewerRole.EDITOR),
            site.action(f"{piece}/decide", self.decide, ViewerRole.EDITOR),
        ]

    async def list_(self, request: Request, viewer: Viewer) -> Response:
        waiting = await self._waiting(request, viewer)
        listed = waiting[:LISTED]
        abouts, names = await self._site.read(lambda: self._about(listed, viewer))
        return self._site.render(
            request,
            viewer,
            "review.html",
            waiting=listed,
            abouts=abouts,
            names=names,
            more=len(waiting) > LISTED,
            kind=request.query_params.get("kind", ""),
            held="held" in request.query_params,
            query=_filter_of(request),
        )

    async def show(self, request: Request, viewer: Viewer) -> Response:
        job_id: UUID = request.path_params["id"]
        current = await self._current(job_id, viewer)
        version, texts = await self._site.read(lambda: self._go_on(current, viewer))
        actions = _actions(current)
        goes_on = version == current.version and Action.EDIT in actions
        ours = texts if goes_on else {}
        ids = [each.job_id for each in await self._waiting(request, viewer)]
        place = ids.index(job_id) if job_id in ids else -1
        numbered = list(enumerate(current.findings, start=1))
        length = sum(map(len, (current.source, current.text or "", json.dumps(current.body), json.dumps(texts))))
        whole = is_whole(request) or length <= MAX_SHOWN
        return self._site.render(
            request,
            viewer,
            "piece.html",
            current=current,
            whole=whole,
            published=Markup(visible(html(piece_of(_as_artifact(current)), level=3, name="piece"))) if whole else None,  # noqa: S704 - it escapes
            fields=_fields(current.body or {}, ours, numbered),
            drafted=bool(_changes(current, ours)),
            notes={action: ours.get(f"{NOTE}{action}", "") for action in NOTED},
            stale={} if goes_on else _unused(current, texts),
            findings=numbered,
            source=_marked(
                current.source if whole else cut(current.source, MAX_SHOWN // 4),
                [(number, each["source_start"], each["source_end"]) for number, each in numbered],
            ),
            actions=actions,
            before=ids[place - 1] if place > 0 else None,
            after=_after(ids, place),
            number=place + 1,
            of=f"{LISTED}+" if len(ids) > LISTED else len(ids),
            query=_filter_of(request),
        )

    async def others(self, request: Request, viewer: Viewer) -> Response:
        """The other viewers of an artifact. Each request also records that this viewer is still looking."""
        current = await self._current(request.path_params["id"], viewer)

        def read() -> Sequence[Any]:
            self._look(current.job_id, viewer, current.version)
            with self._site.database.connect() as connection:
                wanted = {"job_id": current.job_id, "session": viewer.session}
                return connection.execute(statement("http/others_at_review"), wanted).all()

        others = await self._site.read(read)
        newer = request.query_params.get("version") != str(current.version)
        part = self._site.fragment("piece_others.html", others=others, newer=newer, name=viewer.name)
        return HTMLResponse(part, headers=HEADERS)

    async def draft(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        """Save the draft, and show its changes and the findings of the checks."""
        current = await self._current(request.path_params["id"], viewer)
        version = _version_in(form)
        if version != current.version:
            part = self._site.fragment("piece_others.html", others=(), newer=True, name=viewer.name)
            return HTMLResponse(part, headers=HEADERS)
        texts = _texts_in(form)
        _check_texts(current, texts)
        await self._site.read(lambda: self._look(current.job_id, viewer, version, texts))
        if "note_of" in form:
            return HTMLResponse(self._site.fragment("piece_kept.html"), headers=HEADERS)
        checked = await self._site.judges.check_edit(current.kind, current.request, _written(current, texts))
        changes = await self._site.read(lambda: _changes(current, texts))
        part = self._site.fragment(
            "piece_checked.html", problem=checked.problem, findings=checked.findings, changes=changes
        )
        return HTMLResponse(part, headers=HEADERS)

    async def decide(self, request: Request, viewer: Viewer, form: FormData) -> Response:
        job_id: UUID = request.path_params["id"]
        current = await self._current(job_id, viewer)
        action, version = str(form.get("action", "")), _version_in(form)
        texts = _texts_in(form)
        body = None
        if action == Action.EDIT:
            body = current.body or {}
            if version == current.version:  # otherwise somebody was faster; `decide` reports it
                _check_texts(current, texts)
                body = _written(current, texts)
        try:
            note = str(form.get("note", "")).strip() or None
            decision = Decision(action, viewer.signature, note=note, body=body)
            of, kept = await self._site.read(lambda: self._look(job_id, viewer, version, texts))
            leaves_out = action in {Action.APPROVE, *NOTED} and of == current.version and "without" not in form
            if leaves_out and (changes := _changes(current, kept)):
                return self._site.render(
                    request,
                    viewer,
                    "piece_ask.html",
                    current=current,
                    action=action,
                    note=note,
                    changes=changes,
                    query=_filter_of(request),
                )
            ids = [each.job_id for each in await self._waiting(request, viewer)]
            checked = None if body is None else await self._site.judges.check_edit(current.kind, current.request, body)
            async with self._site.recorded(viewer, action.replace("_", " "), str(job_id)) as record:
                now = await self._site.read(
                    lambda: decide(self._site.database, job_id, version, decision, checked, viewer.tenant)
                )
                record.before = {"review": current.review, "version": version}
                record.after = {"review": now.review, "version": now.version, "note": note}
        except InvalidDecisionError as error:
            raise ApiError(400, str(error), code="invalid_value") from None
        except (DecisionConflictError, NothingToDecideError) as error:
            raise ApiError(409, str(error), code="decided") from None
        await self._site.read(lambda: self._forget(job_id, viewer, [*texts]))
        to: UUID | None = job_id
        if action != Action.REOPEN and now.review not in {ReviewState.NEEDS_REVIEW, ReviewState.NEEDS_EDIT}:
            place = ids.index(job_id) if job_id in ids else len(ids)
            to = next(iter(ids[place + 1 :] + ids[:place]), None)
        says = f"{current.kind} {str(job_id)[-8:]} was {DONE[Action(action)]}"
        if now.problem:
            says += f" and stays a draft: {now.problem}"
        address = f"{ROOT}/review/{to}" if to else f"{ROOT}/review"
        return self._site.done(request, address + _filter_of(request), says, f"{ROOT}/review/{job_id}")

    async def _waiting(self, request: Request, viewer: Viewer) -> list[WaitingArtifact]:
        """The waiting artifacts that match the address's filter. One more than is listed tells that there are more."""
        kind, held = request.query_params.get("kind") or None, "held" in request.query_params
        states = [ReviewState.NEEDS_REVIEW, ReviewState.NEEDS_EDIT, *([ReviewState.HELD] if held else [])]
        return await self._site.read(
            lambda: review_queue(self._site.database, states, kind=kind, tenant=viewer.tenant, limit=LISTED + 1)
        )

    async def _current(self, job_id: UUID, viewer: Viewer) -> CurrentVersion:
        try:
            return await self._site.read(lambda: current_version(self._site.database, job_id, viewer.tenant))
        except UnknownJobError:
            raise ApiError(404, f"there is no job {job_id}; it may have been deleted", code="not_found") from None
        except UnreadableArtifactError as error:
            raise ApiError(409, str(error), code="unreadable") from None

    def _about(
        self, waiting: Sequence[WaitingArtifact], viewer: Viewer
    ) -> tuple[dict[UUID, tuple[str, int]], dict[UUID, str]]:
        """The title or first words of each artifact, the number of its findings, and its other viewers.

        Texts are read once: a list is loaded again after each decision.
        """
        if len(self._abouts) > MAX_KEPT:
            self._abouts = {}
        kept = self._abouts
        new = {each.job_id: each for each in waiting if each not in kept}
        with self._site.database.connect() as connection:
            found = connection.execute(statement("producer/artifacts"), {"ids": [*new], "tenant": viewer.tenant}).all()
            wanted = {"ids": [each.job_id for each in waiting], "session": viewer.session}
            names = {row.job_id: row.names for row in connection.execute(statement("http/at_review"), wanted)}
        for row in found:
            own = {"kind": new[row.job_id].kind, "body": row.draft, "text": "", "locale": ""}
            kept[new[row.job_id]] = name_of(piece_of(own)), len(row.findings or ())
        return {each.job_id: kept[each] for each in waiting if each in kept}, names

    def _go_on(self, current: CurrentVersion, viewer: Viewer) -> tuple[int, Mapping[str, str]]:
        """Like `_look`, continuing the viewer's drafts of earlier sessions."""
        wanted = {"job_id": current.job_id, "session": viewer.session, "viewer": viewer.identity}
        with self._site.database.begin() as connection:
            connection.execute(statement("http/go_on_with_review"), wanted)
        return self._look(current.job_id, viewer, current.version)

    def _look(
        self, job_id: UUID, viewer: Viewer, version: int, texts: Mapping[str, str] | None = None
    ) -> tuple[int, Mapping[str, str]]:
        """Record that a viewer is looking, and their edits to a version. Returns all their edits in this session, and
        the version that they edit.
        """
        values = {
            "job_id": job_id,
            "session": viewer.session,
            "viewer": viewer.identity,
            "name": viewer.name,
            "version": version,
            "texts": json.dumps(texts) if texts else None,
        }
        with self._site.database.begin() as connection:
            kept = connection.execute(statement("http/look_at_review"), values).one()
        return kept.version, kept.texts or {}

    def _forget(self, job_id: UUID, viewer: Viewer, used: Sequence[str]) -> None:
        wanted = {"job_id": job_id, "session": viewer.session, "used": used}
        with self._site.database.begin() as connection:
            connection.execute(statement("http/forget_review"), wanted)


def _filter_of(request: Request) -> str:
    """The list's filter, as the addresses of what is on it carry it."""
    given = {name: value for name in ("kind", "held") if (value := request.query_params.get(name))}
    return f"?{urlencode(given)}" if given else ""


def _as_artifact(current: CurrentVersion) -> dict[str, Any]:
    """The version in the form that exports take."""
    asked = current.request if isinstance(current.request, Mapping) else {}
    own = {"kind": current.kind, "body": current.body, "text": current.text or "", "locale": current.locale or ""}
    return {**asked, **own}


def _actions(current: CurrentVersion) -> list[Action]:
    """The decisions that are possible on this version."""
    if current.review in DECIDED:
        return [Action.REOPEN]
    draft = current.problem is not None or current.body is None
    usual = [Action.EDIT, Action.REJECT, Action.SEND_BACK, Action.HOLD]
    return usual if draft else [Action.APPROVE, *usual]


def _after(ids: Sequence[UUID], place: int) -> UUID | None:
    return ids[place + 1] if place + 1 < len(ids) else None


def _fields(
    body: Mapping[str, Any], drafted: Mapping[str, str], numbered: Sequence[tuple[int, Mapping[str, Any]]]
) -> list[dict[str, Any]]:
    """The texts of an artifact, each cut at the borders of findings, and its draft."""
    return [
        {
            "part": part,
            "pieces": _marked(value, [(n, each["start"], each["end"]) for n, each in numbered if each["part"] == part]),
            "text": drafted.get(part, value),
            "rows": min(12, 1 + len(value) // 80),
        }
        for part, value in leaves(body)
        if isinstance(value, str)
    ]


def _marked(text: str, marks: Sequence[tuple[int, Any, Any]]) -> list[tuple[str, str]]:
    """The text in pieces, each with the numbers of the findings that it belongs to, in words for an attribute."""
    inside = [(n, start, end) for n, start, end in marks if isinstance(start, int) and isinstance(end, int)]
    inside = [(n, start, end) for n, start, end in inside if 0 <= start < end <= len(text)]
    borders = sorted({0, len(text), *(place for _, start, end in inside for place in (start, end))})
    return [
        (text[first:last], " ".join(str(n) for n, start, end in inside if start <= first and last <= end))
        for first, last in pairwise(borders)
    ]


def _version_in(form: FormData) -> int:
    given = str(form.get("version", ""))
    if not given.isdecimal() or len(given) > 9:
        raise ApiError(400, "version: expected the number of the version that you have seen", code="invalid_value")
    return int(given)


def _texts_in(form: FormData) -> dict[str, str]:
    """The texts in a form by their fields, and the note of a decision."""
    texts = {
        name.removeprefix(FIELD): value.replace("\r\n", "\n")
        for name, value in form.multi_items()
        if name.startswith(FIELD) and isinstance(value, str)
    }
    note, of = str(form.get("note", "")), str(form.get("note_of") or form.get("action", ""))
    if of in NOTED and "note" in form:
        if len(note) > MAX_NOTE_CHARS:
            says = f"note: has {len(note):,} characters; the limit is {MAX_NOTE_CHARS:,}"
            raise ApiError(400, says, code="invalid_value")
        texts[f"{NOTE}{of}"] = note.replace("\r\n", "\n")
    return texts


def _check_texts(current: CurrentVersion, texts: Mapping[str, str]) -> None:
    """ApiError 400 unless the version has all of these texts."""
    known = {part for part, value in leaves(current.body or {}) if isinstance(value, str)}
    for part in texts:
        if part not in known and not part.startswith(NOTE):
            raise ApiError(400, f"{part}: this version has no such text; load the page again", code="stale")


def _unused(current: CurrentVersion, texts: Mapping[str, str]) -> dict[str, str]:
    """The texts that differ from the version's."""
    now = dict(leaves(current.body or {}))
    return {part: text for part, text in texts.items() if text.strip() not in {"", str(now.get(part, "")).strip()}}


def _written(current: CurrentVersion, texts: Mapping[str, str]) -> dict[str, Any]:
    """The version with these texts. List entries whose texts were all emptied are left out."""
    body = deepcopy(current.body or {})
    for part, text in texts.items():
        inner: Any = body
        *path, last = part.split(".")
        for step in path:
            inner = inner[int(step)] if isinstance(inner, list) else inner[step]
        key: Any = int(last) if isinstance(inner, list) else last
        if text.strip() != inner[key].strip():  # untouched texts keep their spaces
            inner[key] = text.strip()
    _drop_empty(body)
    return body


def _changes(current: CurrentVersion, texts: Mapping[str, str]) -> list[tuple[str, list[DiffPart]]]:
    """The differences between a draft and the version, by field, with a little unchanged text around them."""
    changes = []
    for part, value in leaves(current.body or {}):
        if isinstance(value, str) and part in texts and value.strip() != texts[part].strip():
            parts = [
                DiffPart("same", f"{text[:NEAR]} … {text[-NEAR:]}")
                if what == "same" and len(text) > 2 * NEAR
                else DiffPart(what, text)
                for what, text in word_diff(value.strip(), texts[part].strip())
            ]
            changes.append((part, parts))
    return changes


def _drop_empty(value: Any) -> None:
    """Leave out entries of lists that have texts, all of which are empty."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _drop_empty(each)
    if isinstance(value, list):
        value[:] = [each for each in value if not _is_emptied(each)]


def _is_emptied(value: object) -> bool:
    texts = [each for _, each in leaves({"": value}) if isinstance(each, str)]
    return bool(texts) and not any(texts)
