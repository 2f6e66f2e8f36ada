"""The operator's description of a server, for facts that the server does not report."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from thothy_ai.engine.api.identity import printable
from thothy_ai.settings import Settings

_NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class DeclaredEngine:
    """`model` None: the only one that it lists. `max_context` is for a server that does not say. `name` is the
    engine's; `capacity`, how many requests are sent to it at once.
    """

    gpus: int = 1
    model: str | None = None
    model_name: str | None = None
    max_context: int = 8192
    capacity: int = 64
    name: str = ""
    silence_seconds: float = 600.0

    def name_of(self, model: str) -> str:
        """The name by which jobs ask for this model of the server."""
        return self.model_name or plain_name(model.rpartition("/")[2]) or "model"


def plain_name(text: str) -> str:
    """A text as a name in settings, without characters that names cannot have."""
    return _NOT_IN_NAMES.sub("-", text).strip("-")[:100]


def declared_by(settings: Settings) -> DeclaredEngine:
    """The settings' description of the server at their engine URL."""
    where = urlsplit(settings.engine_url or "").netloc.rpartition("@")[2]
    return DeclaredEngine(
        gpus=settings.engine_gpus,
        model=settings.engine_model,
        model_name=settings.model_name,
        max_context=settings.engine_context,
        capacity=settings.worker_in_flight,
        name=settings.engine_name or plain_name(f"{printable(socket.gethostname())}-{where}"),
        silence_seconds=settings.engine_silence_seconds,
    )
