"""`SharedRows`: the jobs that open pages show, read once a second for all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from thothy_ai.admin.jobs import JobList, jobs_of
from thothy_ai.admin.top.queue import Paced
from thothy_ai.errors import DatabaseError
from thothy_ai.http.console.readings import READ_SECONDS
from thothy_ai.http.console.site import Site

MAX_NEWER = 100  # jobs that are counted


@dataclass(eq=False, slots=True)
class ShownJobs:
    """The jobs of one open page, and their list, if they are the beginning of one."""

    ids: Sequence[UUID]
    of: JobList | None = None
    newer: int = 0  # newer jobs of the list, up to `MAX_NEWER`


class SharedRows:
    """Owns the task that reads, which runs while a page is open."""

    def __init__(self, site: Site) -> None:
        self._site, self._database = site, site.database
        self._pages: list[ShownJobs] = []
        self._newest: dict[JobList, Paced[list[UUID]]] = {}
        self._rows: dict[UUID, dict[str, Any]] = {}
        self._reading: asyncio.Task[None] | None = None

    @contextmanager
    def shown(self, page: ShownJobs) -> Iterator[None]:
        """Read a page's rows during the block."""
        self._pages.append(page)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read_again())
        try:
            yield
        finally:
            self._pages.remove(page)

    def rows(self, ids: Sequence[UUID]) -> list[dict[str, Any]]:
        """The rows of these jobs, as far as they were read and exist."""
        return [self._rows[each] for each in ids if each in self._rows]

    async def _read_again(self) -> None:
        while self._pages and not self._site.ending:
            with suppress(DatabaseError):  # the pages report it, and keep their rows
                await self._site.read(self._read)
            await asyncio.sleep(READ_SECONDS)
        self._rows, self._newest = {}, {}

    def _read(self) -> None:
        pages = list(self._pages)
        ids = {each for page in pages for each in page.ids}
        self._rows = {row["id"]: row for row in jobs_of(self._database, list(ids))}
        lists = {page.of for page in pages if page.of is not None}
        self._newest = {each: self._newest.get(each) or self._paced(each) for each in lists}
        for page in pages:
            if page.of is not None:
                newest = self._newest[page.of].value()[0]
                page.newer = sum(not page.ids or each > page.ids[0] for each in newest)

    def _paced(self, of: JobList) -> Paced[list[UUID]]:
        def read() -> list[UUID]:
            tops = [page.ids[0] for page in list(self._pages) if page.of == of and page.ids]
            rows = of.page(self._database, above=min(tops, default=None), limit=MAX_NEWER)
            return [row["id"] for row in rows]

        return Paced(read, READ_SECONDS)
