"""The embedded stack: a real Valkey, a real Postgres, and the supervised service on one machine."""

from __future__ import annotations

from thothy_ai.embedded.postgres import Postgres
from thothy_ai.embedded.stack import EmbeddedStack
from thothy_ai.embedded.valkey import Valkey

__all__ = ["EmbeddedStack", "Postgres", "Valkey"]
