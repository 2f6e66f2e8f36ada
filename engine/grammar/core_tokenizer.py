"""The core's view of a tokenizer: its definition as text, and what its tokens do to JSON."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

from thothy_ai.engine.grammar.tokens import JsonTokens


@dataclass(frozen=True, slots=True)
class CoreTokenizer:
    """`definition` is a tokenizer.json with all added tokens.

    `eos_token_id` is its end of a text. `end_of_turn` is the token that the chat template writes after an answer; None
    if generation_config.json says which tokens end a generation. `tokens`, if another process computes them, may be for
    another size than the logits'; they are not used then.
    """

    definition: str
    eos_token_id: int | None = None
    end_of_turn: int | None = None
    tokens: Future[JsonTokens | None] | None = None
