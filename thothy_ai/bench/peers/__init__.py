"""Runs other engines on the same jobs by the same rules: greedy, end-of-text ignored, all jobs submitted at once."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from thothy_ai.bench.drain import DrainFailedError
from thothy_ai.bench.figures import PeerResult
from thothy_ai.bench.options import BenchOptions
from thothy_ai.bench.shapes import write_config
from thothy_ai.engine.api.core import CoreRequest
from thothy_ai.engine.api.errors import InvalidRequestError


def require(name: str) -> None:
    """Raise `InvalidRequestError` unless the peer is installed. The peer is not imported, which would take seconds."""
    if importlib.util.find_spec(name) is None:
        raise InvalidRequestError(f"--peer {name}: not installed in {sys.prefix}")


def measure(options: BenchOptions, warm_up: Sequence[CoreRequest], requests: Sequence[CoreRequest]) -> PeerResult:
    """Load the peer that the options name, warm it up and drain. Raises `DrainFailedError` if a token is missing."""
    # Imported here, since each module needs its peer's library.
    if options.peer == "vllm":
        from thothy_ai.bench.peers.vllm_peer import name, resident
    else:
        from thothy_ai.bench.peers.transformers_peer import name, resident
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.engine.model or write_config(str(options.shape), Path(scratch))
        with resident(folder, options.engine, real_weights=options.engine.model is not None) as drain:
            drain(warm_up)
            begin = time.perf_counter()
            counts = drain(requests)
            seconds = time.perf_counter() - begin
    if counts != [request.sampling.max_tokens for request in requests]:
        raise DrainFailedError(f"{name()} did not generate all tokens that were requested")
    return PeerResult(name(), seconds)
