"""`BatchKeeper`: takes batches of OpenAI's API from one state to the next, on its own thread in the reaper's process.

    validating ──▶ in_progress ──▶ finalizing ──▶ completed | expired
        │               │
        └──▶ failed     └──▶ cancelling ──▶ cancelled        (a batch may be cancelled while it is validated, too)

A batch that fails while in progress has `errors` from then on: no more of it is enqueued, and its enqueued jobs end.
Every step can be repeated: a job's idempotency key names its line, the files of results have ids that follow from the
batch's, and they are recorded with its last state in one statement. If the process dies, the next one continues its
work. The reaper ends expired requests at the deadline of their jobs.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import Any, BinaryIO
from uuid import UUID, uuid5

from thothy_ai.batches.lines import LineError, LineProblem, LineReader, names_in, place_of, problems_of
from thothy_ai.batches.results import ResultFile, Results
from thothy_ai.batches.storage import FileStore
from thothy_ai.crash_points import crash_point
from thothy_ai.db.fragments import BATCHES
from thothy_ai.db.states import BatchStatus
from thothy_ai.errors import DatabaseError, DatabaseUnreachableError, EntryError
from thothy_ai.jobs import Request
from thothy_ai.producer import EnqueueOptions, Producer
from thothy_ai.queue.leader import Leader
from thothy_ai.settings import Settings

logger = logging.getLogger(__name__)

INTERVAL = 2.0  # seconds between two rounds; a NOTIFY cuts the wait short
MIN_INTERVAL = 0.1  # between two rounds: any end of a job can be its batch's
PORTION = 1_000  # lines whose jobs are enqueued in one transaction
PORTION_BYTES = 16_000_000
RESULTS = 200  # rows read at once
CANCELLED = 5_000  # jobs cancelled in one transaction
HOUR = 3600.0
# A line's number, its size, and its job; no job if no engine has ever served its model.
Entry = tuple[int, int, tuple[Request, EnqueueOptions] | None]


class BatchKeeper:
    """Owns the rows of `api_batch` from their validation to their end, and the files that nobody reads any more."""

    def __init__(self, settings: Settings) -> None:
        self._leader = Leader(settings, "batches", channels=(BATCHES,))
        self._producer = Producer(settings.model_copy(update={"kinds": ()}))  # the API's are built in
        self._store = FileStore(settings)
        self._entries: dict[UUID, Iterator[Entry]] = {}  # by batch that is being enqueued: its remaining lines
        self._term = 0
        self._last_look = self._last_purge = float("-inf")

    def run(self) -> None:
        try:
            self._leader.lead(self._round)
        finally:
            self._producer.close()

    def stop(self) -> None:
        """Stop at once; from any thread."""
        self._leader.stop()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep batches on a thread of its own until the end of the block."""
        try:
            with self._leader.leading(self._round):
                yield
        finally:
            self._producer.close()

    def _round(self) -> float:
        if self._term != self._leader.term:  # another keeper may have continued meanwhile
            self._term, self._entries = self._leader.term, {}
        if time.monotonic() - self._last_purge >= HOUR:
            self._leader.ask("batches/purge_files")
            self._store.sweep({row.id.hex for row in self._leader.ask("batches/files_in_folder")})
            self._last_purge = time.monotonic()
        if (early := self._last_look + MIN_INTERVAL - time.monotonic()) > 0:
            return early
        self._last_look = time.monotonic()
        unfinished = False
        for row in self._leader.ask("batches/open"):
            try:
                unfinished |= self._advance(row)
            except DatabaseUnreachableError:
                raise
            except Exception:  # a failing batch must not hold up the others
                self._entries.pop(row.id, None)  # the iterator is past lines that are not enqueued
                logger.exception("batch_%s cannot go on", row.id.hex)
        if unfinished:
            self._last_look = float("-inf")
            return 0.0
        return INTERVAL

    def _advance(self, row: Any) -> bool:
        """Take a step; returns whether the next one can follow at once."""
        status = BatchStatus(row.status)
        try:
            if status is BatchStatus.VALIDATING:
                self._validate(row)
                return True
            if status is BatchStatus.IN_PROGRESS and row.enqueued < row.lines and not (row.over or row.stopped):
                return self._enqueue(row)
        except (EntryError, LineError, FileNotFoundError, DatabaseError) as error:
            if isinstance(error, DatabaseError) and not error.is_unstorable:
                raise
            self._fail(row, [LineProblem("invalid_input", f"the input cannot be enqueued: {error}")])
            return True
        if status is BatchStatus.CANCELLING and not row.idle:
            jobs = [job.id for job in self._leader.ask("batches/open_jobs", id=row.id, limit=CANCELLED)]
            if jobs:
                self._leader.ask("queue/cancel", ids=jobs, tenant=row.tenant)
            return len(jobs) == CANCELLED  # there may be more
        if row.idle:
            self._end(row, status)
        return False

    def _validate(self, row: Any) -> None:
        if row.over:
            self._fail(row, [LineProblem("batch_expired", "the batch expired before its input was read")])
            return
        with self._input(row) as content:
            problems, lines, requests, models = problems_of(self._reader(row), content, self._producer.settings)
        if problems:
            self._fail(row, problems)
            return
        model = next(iter(models)) if len(models) == 1 else None
        self._leader.ask("batches/begin", id=row.id, lines=lines, requests=requests, model=model)

    def _fail(self, row: Any, problems: list[LineProblem]) -> None:
        errors = {"object": "list", "data": [problem.shown for problem in problems]}
        self._leader.ask("batches/fail", id=row.id, errors=json.dumps(errors))
        self._entries.pop(row.id, None)

    def _enqueue(self, row: Any) -> bool:
        """Enqueue the next lines; returns whether there are more."""
        entries = self._entries.setdefault(row.id, self._entries_of(row))
        portion, numbers, read, size, last = [], [], 0, 0, row.lines
        for number, length, job in islice(entries, PORTION):
            if job is not None:
                portion.append(job)
                numbers.append(number)
            read, size, last = read + 1, size + length, number
            if size >= PORTION_BYTES:
                break
        if read < PORTION and size < PORTION_BYTES:
            last = row.lines  # blank lines may follow the last request
        try:
            if portion:
                self._producer.of_tenant(row.tenant).enqueue_many(portion, batch=row.id)
        except EntryError as error:
            raise error.at(None, "a line" if error.entry is None else f"line {numbers[error.entry]}") from None
        crash_point("batch_portion")
        more = bool(self._leader.ask("batches/enqueued", id=row.id, lines=last)) and last < row.lines
        if not more:
            del self._entries[row.id]
        return more

    def _entries_of(self, row: Any) -> Iterator[Entry]:
        """The lines that follow those recorded as enqueued."""
        reader = self._reader(row)
        with self._input(row) as content:
            for number, text in reader.raw(content, after=row.enqueued):
                line = reader.read(number, text)
                options = replace(line.options, deadline=row.expires_at, idempotency_key=line.key(row.id))
                yield number, len(text), (line.request, options) if line.served else None

    def _reader(self, row: Any) -> LineReader:
        return LineReader(row.endpoint, self._served())

    def _served(self) -> set[str]:
        """The names of all models and adapters ever served."""
        return {each.name for each in self._leader.ask("batches/models")}

    def _end(self, row: Any, status: BatchStatus) -> None:
        """Write the result files of a batch without open jobs, and end it."""
        self._entries.pop(row.id, None)
        if status is BatchStatus.IN_PROGRESS:
            self._leader.ask("batches/finalize", id=row.id)
        cancelled = status is BatchStatus.CANCELLING
        with ExitStack() as stack:
            results = Results(*(stack.enter_context(self._store.spool()) for _ in range(2)))
            self._write(row, results, "cancelled" if cancelled else "failed" if row.stopped else "expired")
            if row.stopped and not cancelled:
                results.failed = row.requests - results.completed - results.expired
            crash_point("batch_written")
            last = BatchStatus.CANCELLED if cancelled else BatchStatus.EXPIRED if results.expired else None
            self._record(row, results, last or BatchStatus.COMPLETED)
        logger.info("batch_%s is %s", row.id.hex, last or BatchStatus.COMPLETED)

    def _write(self, row: Any, results: Results, cut_short: str) -> None:
        """Write how each request ended, in the order of the lines; requests without a job come last."""
        ids = [job.id for job in self._leader.ask("batches/jobs", id=row.id)]
        enqueued, written = row.enqueued, set[int]()
        for start in range(0, len(ids), RESULTS):
            for job in self._leader.ask("batches/results", ids=ids[start : start + RESULTS]):
                number, custom_id = place_of(job.idempotency_key)
                enqueued = max(enqueued, number)
                written.add(number)
                results.add(job, custom_id)
        if len(written) < row.requests:
            served = self._served()
            with suppress(FileNotFoundError), self._input(row) as content:
                for number, text in LineReader(row.endpoint).raw(content):
                    if number not in written:
                        custom_id, model = names_in(text)
                        if number > enqueued:
                            results.cut_short(None, custom_id, f"batch_{cut_short}")
                        elif model in served:
                            results.cut_short(None, custom_id, "job_missing")
                        else:
                            results.not_served(custom_id, model)

    def _record(self, row: Any, results: Results, last: BatchStatus) -> None:
        made: dict[str, tuple[UUID, ResultFile, bytes | None]] = {}
        for name, file in (("output", results.output), ("error", results.error)):
            if file.lines:
                file_id = uuid5(row.id, name)
                made[name] = file_id, file, self._store.place(file_id, file.content, file.size)
        self._leader.ask(
            "batches/end",
            id=row.id,
            status=last,
            completed=results.completed,
            failed=results.failed,
            usage=json.dumps(results.usage_object()),
            output=made["output"][0] if "output" in made else None,
            error=made["error"][0] if "error" in made else None,
            ids=[file_id for file_id, _, _ in made.values()],
            names=[f"batch_{row.id.hex}_{name}.jsonl" for name in made],
            sizes=[file.size for _, file, _ in made.values()],
            contents=[content for _, _, content in made.values()],
        )

    @contextmanager
    def _input(self, row: Any) -> Iterator[BinaryIO]:
        """The batch's input. Raises `FileNotFoundError` if it is gone."""
        found = self._leader.ask("batches/input", id=row.input_file_id)
        if not found:
            raise FileNotFoundError("it was removed")
        with self._store.open(row.input_file_id, found[0].content) as content:
            yield content
