"""Thothy AI: a queue of content jobs, drained through a GPU engine of its own.

Importing this package is quick and light: names are resolved on first use, so a producer never pays for
torch, and the engine can be imported where the service's own dependencies are absent.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thothy_ai.producer import AsyncJob, AsyncProducer, Job, Producer

__version__ = "0.1.0"
__all__ = ["AsyncJob", "AsyncProducer", "Job", "Producer", "__version__"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("thothy_ai.producer"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
