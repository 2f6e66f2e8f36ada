"""Parts shared by the objects of several routes: usage, finish reasons, log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thothy_ai.engine.api import FinishReason, GenerationResult, TokenLogprob

IMPOSSIBLE = -9999.0  # what OpenAI answers for a log-probability of minus infinity
FINISHED = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.REPETITION: "length",  # the text is incomplete as well
}


def usage_of(results: Sequence[GenerationResult]) -> dict[str, Any]:
    """The tokens of all prompts and all outputs."""
    prompt = sum(result.usage.prompt_tokens for result in results)
    output = sum(result.usage.output_tokens for result in results)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": sum(result.usage.cached_tokens for result in results)},
        "completion_tokens_details": {"reasoning_tokens": sum(result.usage.thought_tokens for result in results)},
    }


def finite(logprob: float) -> float:
    return max(logprob, IMPOSSIBLE)


def spelled(token: int, vocabulary: Sequence[bytes]) -> bytes:
    """A token's bytes; empty for a special token."""
    return vocabulary[token] if token < len(vocabulary) else b""


def token_logprobs(
    tokens: Sequence[int], logprobs: Sequence[TokenLogprob | None], top: int, vocabulary: Sequence[bytes]
) -> list[dict[str, Any]]:
    """Each token's log-probability, and those of the `top` likeliest tokens. A token forced by a schema is certain."""

    def named(token: int, logprob: float) -> dict[str, Any]:
        data = spelled(token, vocabulary)
        return {"token": data.decode(errors="replace"), "logprob": finite(logprob), "bytes": list(data)}

    listed = []
    for token, drawn in zip(tokens, logprobs, strict=True):
        entry = named(token, 0.0 if drawn is None else drawn.logprob)
        likeliest = zip(drawn.top_tokens, drawn.top_logprobs, strict=True) if drawn else ()
        entry["top_logprobs"] = [named(*each) for each in list(likeliest)[:top]]
        listed.append(entry)
    return listed
