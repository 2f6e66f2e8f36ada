"""Thothy AI: a queue of content jobs and the GPU engine that drains it.

Importing this package is fast. Names are resolved on first use, so a producer never loads torch, and the engine can be
imported where the service's dependencies are not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thothy_ai.producer import (
        AsyncJob,
        AsyncProducer,
        Ended,
        EnqueueOptions,
        Job,
        Jobs,
        Producer,
        WebhookMessage,
        verify_webhook,
    )

__version__ = "0.1.0"
__all__ = [
    "AsyncJob",
    "AsyncProducer",
    "Ended",
    "EnqueueOptions",
    "Job",
    "Jobs",
    "Producer",
    "WebhookMessage",
    "__version__",
    "verify_webhook",
]

if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name in __all__:
            return getattr(import_module("thothy_ai.producer"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
