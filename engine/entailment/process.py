"""The verifier's process: loads the model, and computes waiting requests together.

Run as `python -m thothy_ai.engine.entailment.process FD`, where FD is its end of the channel. It ends with its parent.
"""

from __future__ import annotations

import logging
import queue
import socket
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from thothy_ai.engine.api.errors import EngineError, ModelLoadError, as_engine_error
from thothy_ai.engine.wire.channel import Channel
from thothy_ai.engine.wire.child import end_with_parent
from thothy_ai.engine.wire.verifier_messages import (
    FROM_VERIFIER,
    TO_VERIFIER,
    FromVerifier,
    JudgedPairs,
    JudgePairs,
    LoadVerifier,
    PairsJudged,
    ToVerifier,
    VerifierReady,
    VerifierRefused,
)

if TYPE_CHECKING:
    from thothy_ai.engine.entailment.model import EntailmentModel

_MAX_TOGETHER = 256  # pairs; a request that arrives meanwhile waits for no more than these

log = logging.getLogger(__name__)


def main() -> None:
    """Load the model that the parent asks for, and judge pairs until the parent ends."""
    end_with_parent()
    channel: Channel[FromVerifier, ToVerifier] = Channel(
        socket.socket(fileno=int(sys.argv[1])), FROM_VERIFIER, TO_VERIFIER
    )
    received = iter(channel)
    first = next(received)
    if not isinstance(first, LoadVerifier):
        raise TypeError(f"expected a LoadVerifier first, got {first!r:.80}")
    logging.basicConfig(level=first.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        model = _loaded(first)
    except (EngineError, ImportError) as error:
        channel.send(VerifierRefused(as_engine_error(error)))
        return
    channel.send(VerifierReady())
    waiting: queue.SimpleQueue[JudgePairs | None] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(received, waiting), name="verifier-requests", daemon=True).start()
    for requests in _together(waiting):
        for done in judged(model, requests):
            channel.send(done)


def _loaded(wanted: LoadVerifier) -> EntailmentModel:
    import torch  # noqa: PLC0415  takes seconds

    from thothy_ai.engine.entailment.model import EntailmentModel  # noqa: PLC0415  as above

    if wanted.threads is not None:
        torch.set_num_threads(wanted.threads)
    try:
        return EntailmentModel(wanted.folder, wanted.device)
    except torch.OutOfMemoryError as error:
        raise ModelLoadError(f"--verifier {wanted.folder} does not fit {wanted.device}: {error}") from error


def _receive(received: Iterable[ToVerifier], waiting: queue.SimpleQueue[JudgePairs | None]) -> None:
    for message in received:
        if isinstance(message, JudgePairs):
            waiting.put(message)
    waiting.put(None)


def _together(waiting: queue.SimpleQueue[JudgePairs | None]) -> Iterator[list[JudgePairs]]:
    """Yield waiting requests, at each time as many as fit the limit of pairs."""
    while (request := waiting.get()) is not None:
        requests = [request]
        while sum(len(each.pairs) for each in requests) < _MAX_TOGETHER and not waiting.empty():
            if (another := waiting.get()) is None:
                return
            requests.append(another)
        yield requests


def judged(model: EntailmentModel, requests: Sequence[JudgePairs]) -> Iterator[PairsJudged]:
    """Judge the pairs of requests in common batches. A batch's seconds are divided by its pairs' characters."""
    owners = [(request.number, place) for request in requests for place in range(len(request.pairs))]
    pairs = [pair for request in requests for pair in request.pairs]
    weights = [len(premise) + len(claim) + 1 for premise, claim in pairs]
    for batch in model.judged(pairs):
        labels: dict[int, dict[int, str | None]] = defaultdict(dict)
        shares: dict[int, float] = defaultdict(float)
        total = sum(weights[place] for place in batch.labels)
        for place, label in batch.labels.items():
            number, of_request = owners[place]
            labels[number][of_request] = label
            shares[number] += batch.seconds * weights[place] / total
        yield PairsJudged(tuple(JudgedPairs(number, found, shares[number]) for number, found in labels.items()))


if __name__ == "__main__":
    main()
