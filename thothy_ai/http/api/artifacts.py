"""`/api/artifacts`: the outputs of jobs, in pages or all at once."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import datetime
from uuid import UUID

from sqlalchemy import Engine
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import StreamingResponse

from thothy_ai.admin.artifacts import Place, list_artifacts, stream_artifacts
from thothy_ai.admin.export.formats import BYTE_ORDER_MARK, Format, stream
from thothy_ai.db.connect import reaching
from thothy_ai.http.api.jobs import JobOperations, filter_of
from thothy_ai.http.api.models import ArtifactAnswer, ArtifactList, ArtifactQuery, ExportQuery
from thothy_ai.http.api.operations import Operation, OperationCall, stream_of
from thothy_ai.http.errors import ApiError
from thothy_ai.settings import Settings

MEDIA = {
    Format.JSONL: "application/jsonl",
    Format.CSV: "text/csv",
    Format.MD: "text/markdown",
    Format.HTML: "text/html",
}
MAX_ATTEMPT = 2**31 - 1  # of Postgres' integers


class ArtifactOperations:
    """The operations on the artifacts of jobs."""

    def __init__(self, settings: Settings, jobs: JobOperations, database: Engine) -> None:
        self._settings, self._jobs, self._database = settings, jobs, database
        self.operations = (
            Operation(
                "GET", "/api/artifacts", "List artifacts, accepted and rejected.", "read", self.list_,
                query=ArtifactQuery, answer=ArtifactList,
            ),
            Operation(
                "GET", "/api/artifacts/export", "All artifacts that match, the newest first, in one file.",
                "read", self.export, query=ExportQuery, media=tuple(MEDIA.values()),
            ),
        )  # fmt: skip

    async def list_(self, call: OperationCall) -> ArtifactList:
        wanted: ArtifactQuery = call.query
        place = _place_of(wanted.after) if wanted.after is not None else None
        found = await self._jobs.read(
            lambda: list_artifacts(
                self._database,
                filter_of(wanted, call.caller.tenant),
                verdict=wanted.verdict,
                approved=wanted.approved,
                since=wanted.since,
                until=wanted.until,
                after=place,
                limit=wanted.limit + 1,
            )
        )
        shown = [ArtifactAnswer.model_validate(each) for each in found[: wanted.limit]]
        return ArtifactList(data=shown, next=_cursor_of(shown[-1]) if len(found) > wanted.limit else None)

    async def export(self, call: OperationCall) -> StreamingResponse:
        wanted: ExportQuery = call.query
        chosen = Format(wanted.format)

        def pieces() -> Iterator[bytes]:
            found = stream_artifacts(
                self._database,
                filter_of(wanted, call.caller.tenant),
                verdict=wanted.verdict,
                approved=wanted.approved,
                since=wanted.since,
                until=wanted.until,
            )
            with reaching(self._settings):
                if chosen is Format.CSV:
                    yield BYTE_ORDER_MARK.encode()
                for each in stream(found, chosen):
                    yield each.encode()

        headers = {"content-disposition": f'attachment; filename="artifacts.{chosen}"'}
        return await stream_of(iterate_in_threadpool(pieces()), MEDIA[chosen], headers)


def _cursor_of(last: ArtifactAnswer) -> str:
    place = f"{last.created_at.isoformat()} {last.job_id} {last.attempt}"
    return base64.urlsafe_b64encode(place.encode()).decode()


def _place_of(cursor: str) -> Place:
    try:
        at, job_id, attempt = base64.urlsafe_b64decode(cursor).decode().split(" ")
        place = datetime.fromisoformat(at), UUID(job_id), int(attempt)
        if 0 < place[2] <= MAX_ATTEMPT:
            return place
    except ValueError:
        pass
    raise ApiError(400, "after: is not a cursor of a page", code="invalid_value", param="after")
