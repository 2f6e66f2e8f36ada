"""One prompt's tokens, as the frontend gets them of many."""

from __future__ import annotations

from thothy_ai.engine.api import GenerationRequest
from thothy_ai.engine.text.prompts import PromptEncoder, Tokens


def encode(encoder: PromptEncoder, request: GenerationRequest) -> Tokens:
    """Raises what the request fails with."""
    [tokens] = encoder.encode([encoder.write(request)])
    if isinstance(tokens, Exception):
        raise tokens
    return tokens
