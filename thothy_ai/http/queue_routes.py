"""`QueueRoutes`: the routes over the queue's records, where there is a database."""

from __future__ import annotations

from starlette.routing import Route

from thothy_ai.batches.storage import FileStore
from thothy_ai.http.openai.batches import Batches
from thothy_ai.http.openai.files import Files
from thothy_ai.http.record import Record
from thothy_ai.settings import Settings


class QueueRoutes:
    """Owns the connections that they use."""

    def __init__(self, settings: Settings) -> None:
        self._record = Record(settings)
        self.routes: list[Route] = [
            *Files(self._record, FileStore(settings)).routes,
            *Batches(self._record).routes,
        ]

    async def close(self) -> None:
        await self._record.close()
