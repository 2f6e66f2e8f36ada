"""`QueueRoutes`: the routes over the queue's records, where there is a database."""

from __future__ import annotations

import asyncio

from starlette.routing import Route

from thothy_ai.batches.storage import FileStore
from thothy_ai.db.connect import make_engine
from thothy_ai.http.api.artifacts import ArtifactOperations
from thothy_ai.http.api.batches import BatchOperations
from thothy_ai.http.api.document import document_route
from thothy_ai.http.api.jobs import JobOperations
from thothy_ai.http.api.kinds import KindOperations
from thothy_ai.http.api.review import ReviewOperations
from thothy_ai.http.openai.batches import ApiBatches
from thothy_ai.http.openai.files import Files
from thothy_ai.http.record import DoorRecord
from thothy_ai.plans.judges import EDIT_JUDGES, Judges
from thothy_ai.producer import AsyncProducer, Producer
from thothy_ai.settings import Settings


class QueueRoutes:
    """Owns the connections that they use."""

    def __init__(self, settings: Settings) -> None:
        self._record = DoorRecord(settings)
        self._database = make_engine(settings, application="serve")
        self._producer, self._waiting = Producer(settings), AsyncProducer(settings)
        self._jobs = JobOperations(settings, self._record, self._waiting, self._database)
        self._judges = Judges(settings.kinds, settings.judge_seconds, EDIT_JUDGES, settings.gates_as_findings)
        parts = (
            self._jobs,
            BatchOperations(self._record, self._jobs, self._producer),
            ArtifactOperations(settings, self._jobs, self._database),
            ReviewOperations(self._jobs, self._database, self._judges),
            KindOperations(),
        )
        self.operations = [operation for part in parts for operation in part.operations]
        self.routes: list[Route] = [
            *Files(self._record, FileStore(settings)).routes,
            *ApiBatches(self._record).routes,
            *(operation.route for operation in self.operations),
            document_route(self.operations),
        ]

    def end_streams(self) -> None:
        """Let streams that follow jobs end."""
        self._jobs.followers.ending = True

    async def close(self) -> None:
        await self._judges.close()
        self._jobs.followers.close()
        await self._waiting.close()
        await self._record.close()
        await asyncio.to_thread(self._producer.close)
        self._database.dispose()
