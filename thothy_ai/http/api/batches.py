"""`/api/batches`: jobs that are enqueued together, all or none."""

from __future__ import annotations

import asyncio
from typing import Any

from thothy_ai.errors import EntryError
from thothy_ai.http.api.jobs import JobOperations, entry_of, refusal
from thothy_ai.http.api.models import BatchAnswer, BatchList, BatchQuery, NewBatch, NewBatchAnswer
from thothy_ai.http.api.operations import Operation, OperationCall, missing
from thothy_ai.http.record import DoorRecord
from thothy_ai.producer import Producer

CANCELLED = 5_000  # jobs that are cancelled at once


class BatchOperations:
    """The operations on batches. Work on many requests is done on threads."""

    def __init__(self, record: DoorRecord, jobs: JobOperations, producer: Producer) -> None:
        self._record, self._jobs, self._producer = record, jobs, producer
        batch = "/api/batches/{id}"
        self.operations = (
            Operation(
                "POST", "/api/batches", "Enqueue jobs together, all or none.", "jobs", self.enqueue, body=NewBatch,
                answer=NewBatchAnswer,
            ),
            Operation("GET", "/api/batches", "List batches.", "read", self.list_, query=BatchQuery, answer=BatchList),
            Operation("GET", batch, "A batch, and the states of its jobs.", "read", self.show, answer=BatchAnswer),
            Operation("POST", f"{batch}/cancel", "Cancel its open jobs.", "jobs", self.cancel, answer=BatchAnswer),
        )  # fmt: skip

    async def enqueue(self, call: OperationCall) -> NewBatchAnswer:
        wanted: NewBatch = call.body
        producer = self._producer.of_tenant(call.caller.tenant)

        def enqueue() -> NewBatchAnswer:
            entries = [entry_of(job, job.idempotency_key, f"jobs.{at}.") for at, job in enumerate(wanted.jobs)]
            try:
                jobs = producer.enqueue_many(entries, webhook=wanted.webhook, notify=wanted.notify, batch=True)
            except EntryError as error:
                raise refusal(error, "" if error.entry is None else f"jobs.{error.entry}.") from None
            return NewBatchAnswer(id=jobs.batch_id, jobs=[job.id for job in jobs])

        return await asyncio.to_thread(enqueue)

    async def list_(self, call: OperationCall) -> BatchList:
        wanted: BatchQuery = call.query
        tenant = call.caller.tenant
        rows = await self._record.ask("http/batches", tenant=tenant, after=wanted.after, limit=wanted.limit + 1)
        batches = await self._batches(tenant, rows[: wanted.limit])
        return BatchList(data=batches, has_more=len(rows) > wanted.limit)

    async def show(self, call: OperationCall) -> BatchAnswer:
        rows = await self._record.ask("http/batch", id=call.id, tenant=call.caller.tenant)
        if not rows:
            raise missing("batch", call.id)
        return (await self._batches(call.caller.tenant, rows))[0]

    async def cancel(self, call: OperationCall) -> BatchAnswer:
        await self.show(call)
        while jobs := [each.id for each in await self._record.ask("batches/open_jobs", id=call.id, limit=CANCELLED)]:
            await self._jobs.cancelled(jobs)
        return await self.show(call)

    async def _batches(self, tenant: str, rows: Any) -> list[BatchAnswer]:
        states: dict[Any, dict[str, int]] = {row.id: {} for row in rows}
        for each in await self._record.ask("http/batch_states", ids=list(states), tenant=tenant):
            states[each.batch_id][each.state] = each.jobs
        return [BatchAnswer.model_validate({**row._mapping, "states": states[row.id]}) for row in rows]
