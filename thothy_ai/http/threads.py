"""Threads next to the event loop, one pool per kind of waiting.

The routes over the queue use the event loop's own threads. If the database hangs for them, bodies must still be parsed,
and revoked keys must still be noticed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

PARSERS: Final = ThreadPoolExecutor(2, thread_name_prefix="parser")
KEEPERS: Final = ThreadPoolExecutor(3, thread_name_prefix="keeper")  # of keys, engines and the bill, each with one
