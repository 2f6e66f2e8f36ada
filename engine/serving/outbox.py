"""What a connection still has to send. A slow client makes it merge, not grow: one delta a request at most."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from thothy_ai.engine.api import Delta
from thothy_ai.engine.backend import Output

_FRAME_OUTPUTS = 32  # a result holds up to a whole context of tokens, and a frame has a limit


class Outbox:
    """Owns the outputs of one connection between the backend and the socket."""

    def __init__(self) -> None:
        self._deltas: dict[str, Delta] = {}
        self._ends: list[Output] = []

    def __bool__(self) -> bool:
        return bool(self._deltas or self._ends)

    def add(self, output: Output) -> None:
        """Queue an output; a delta joins the one of its request that is still here."""
        if not isinstance(output, Delta):
            self._ends.append(output)
            return
        waiting = self._deltas.get(output.id)
        if waiting is not None:
            output = Delta(output.id, waiting.text + output.text, waiting.token_ids + output.token_ids)
        self._deltas[output.id] = output

    def take(self) -> Iterator[tuple[Output, ...]]:
        """Everything, in batches fit for a frame: deltas first, since a result is always its request's last word."""
        outputs = [*self._deltas.values(), *self._ends]
        self._deltas, self._ends = {}, []
        return _batches(outputs)


def _batches(outputs: Iterable[Output]) -> Iterator[tuple[Output, ...]]:
    remaining = iter(outputs)
    while batch := tuple(islice(remaining, _FRAME_OUTPUTS)):
        yield batch
