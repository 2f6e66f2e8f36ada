"""Threads beside the event loop, apart by what they wait for.

A database that hangs for the routes over the queue, which have the loop's own threads, must not keep bodies from being
parsed, nor a revoked key from being noticed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

PARSERS: Final = ThreadPoolExecutor(2, thread_name_prefix="parser")
KEEPERS: Final = ThreadPoolExecutor(3, thread_name_prefix="keeper")  # of keys, engines and the bill, each with one
