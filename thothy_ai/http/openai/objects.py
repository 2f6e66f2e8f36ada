"""Parts that the objects of several routes have: usage, finish reasons, log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thothy_ai.engine.api import FinishReason, GenerationResult, TokenLogprob

IMPOSSIBLE = -9999.0  # what OpenAI answers for a log-probability of minus infinity
FINISHED = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.REPETITION: "length",  # it is no whole text, either
}


def usage_of(results: Sequence[GenerationResult]) -> dict[str, Any]:
    """Tokens of all prompts and of all that was written for them."""
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
    """A token's bytes; none for a special one."""
    return vocabulary[token] if token < len(vocabulary) else b""


def token_logprobs(
    tokens: Sequence[int], logprobs: Sequence[TokenLogprob | None], top: int, vocabulary: Sequence[bytes]
) -> list[dict[str, Any]]:
    """Of each token its log-probability, and those of the `top` likeliest. A token that a schema forced is certain."""

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
