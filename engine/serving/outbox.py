"""The outputs that a connection must still send. They stay few for a slow client: one delta per request and choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from thothy_ai.engine.api import Delta
from thothy_ai.engine.api.backend import Output
from thothy_ai.engine.api.messages import joined

_MAX_OUTPUTS = 32  # per frame: a result holds up to a whole context of tokens, and a frame has a size limit


class Outbox:
    """Owns the outputs of one connection between the backend and the socket."""

    def __init__(self) -> None:
        self._deltas: dict[tuple[str, int], Delta] = {}
        self._ends: list[Output] = []

    def __bool__(self) -> bool:
        return bool(self._deltas or self._ends)

    def add(self, output: Output) -> None:
        """Queue an output; a delta is merged into a waiting delta of its choice."""
        if not isinstance(output, Delta):
            self._ends.append(output)
            return
        key = (output.id, output.choice)
        if (waiting := self._deltas.get(key)) is not None:
            output = replace(
                output,
                text=waiting.text + output.text,
                token_ids=waiting.token_ids + output.token_ids,
                logprobs=waiting.logprobs + output.logprobs,
                thoughts=waiting.thoughts + output.thoughts,
                calls=joined((*waiting.calls, *output.calls)),
            )
        self._deltas[key] = output

    def take(self) -> Iterator[list[Output]]:
        """Remove everything, in batches for one frame each; deltas first: a result is its request's last output."""
        outputs = [*self._deltas.values(), *self._ends]
        self._deltas, self._ends = {}, []
        for start in range(0, len(outputs), _MAX_OUTPUTS):
            yield outputs[start : start + _MAX_OUTPUTS]
