"""An adapter as scheduling knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from thothy_ai.engine.api.errors import InvalidRequestError

NO_SLOT = -1


class Adapter(NamedTuple):
    """`number` is its own as long as it is in host memory; `digest` tells its weights from all others."""

    number: int
    digest: str
    invocation_tokens: tuple[int, ...] = ()

    def begins(self, prompt: Sequence[int]) -> int:
        """The first token that it computes: of an activated adapter, that of the last invocation.

        InvalidRequestError if there is none: the base model would answer.
        """
        wanted = self.invocation_tokens
        if not wanted:
            return 0
        for start in range(len(prompt) - len(wanted), -1, -1):
            if prompt[start] == wanted[0] and tuple(prompt[start : start + len(wanted)]) == wanted:
                return start
        raise InvalidRequestError(
            f"the prompt does not have the tokens {[*wanted]} that activate this adapter", "adapter"
        )
