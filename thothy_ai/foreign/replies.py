"""What a server sends back: pieces of text, and refusals."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from thothy_ai.engine.api import CallDelta, FinishReason
from thothy_ai.engine.api.errors import (
    ConnectionLostError,
    EngineAuthenticationError,
    EngineError,
    InvalidRequestError,
    PromptTooLongError,
    ProtocolError,
    one_line,
)

_FINISHED = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.ABORTED,  # vLLM's and SGLang's
}
# Servers word it differently, and none but OpenAI has a code for it.
_TOO_LONG = re.compile(r"context.{0,3}(length|window|size)|(prompt|input).{0,30}too long|exceed.{0,40}context", re.I)
MAX_PAUSE = 120.0  # seconds, whatever a server says


class BusyError(EngineError):
    """The server takes no request now. `seconds`: the pause that it asks for."""

    def __init__(self, says: str, seconds: float | None = None) -> None:
        super().__init__(says)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class StreamedPiece:
    """What an event adds to a text. `usage`, which the last one has: tokens of the prompt, of those the cached ones,
    and of the output.
    """

    text: str = ""
    thoughts: str = ""  # not part of the text
    calls: tuple[CallDelta, ...] = ()
    finish_reason: FinishReason | None = None
    logprobs: tuple[float, ...] = ()
    usage: tuple[int, int, int] | None = None


def piece_of(event: Any) -> StreamedPiece:
    """The new part of the first choice in an event, or in a whole answer. Raises the error that it carries, or
    ProtocolError.
    """
    try:
        if error := event.get("error"):
            raise error_of(error)
        usage = _usage(event.get("usage"))
        if not (choices := event.get("choices")):
            return StreamedPiece(usage=usage)
        choice = choices[0]
        message = choice.get("delta") or choice.get("message") or {}
        text = choice.get("text") or message.get("content") or ""
        finished = choice.get("finish_reason")
        return StreamedPiece(
            _string(text),
            _string(message.get("reasoning_content") or message.get("reasoning") or ""),
            tuple(_call(at, call) for at, call in enumerate(message.get("tool_calls") or ())),
            _FINISHED.get(finished, FinishReason.STOP) if finished else None,
            _logprobs(choice.get("logprobs")),
            usage,
        )
    except (AttributeError, TypeError, KeyError, IndexError, ValueError):
        raise ProtocolError(f"the server sent an event that is not a completion: {str(event)[:200]}") from None


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _call(at: int, call: Any) -> CallDelta:
    """A tool call or its next part; in a whole answer, calls have no index."""
    function = call["function"]
    return CallDelta(
        int(call.get("index", at)), _string(function.get("name") or ""), _string(function.get("arguments") or "")
    )


def _usage(usage: Any) -> tuple[int, int, int] | None:
    if not usage:
        return None
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return int(usage["prompt_tokens"]), int(cached), int(usage.get("completion_tokens") or 0)


def _logprobs(logprobs: Any) -> tuple[float, ...]:
    if not logprobs:
        return ()
    if (content := logprobs.get("content")) is not None:
        return tuple(float(token["logprob"]) for token in content)
    return tuple(float(value) for value in logprobs.get("token_logprobs") or () if value is not None)


def refusal_of(status: int, retry_after: str | None, body: bytes) -> EngineError:
    """What an answer means that is not 200; a `BusyError` if the request may be sent again."""
    field = ""
    try:
        said = json.loads(body)
        said = said.get("error", said)
        field = "" if isinstance(said, str) else str(said.get("param") or "")
        says = said if isinstance(said, str) else str(said.get("message") or said.get("detail") or said)
    except (ValueError, RecursionError, AttributeError):
        says = body[:500].decode(errors="replace")
    says = f"the server answered {status}: {one_line(ValueError(says), 500)}"
    if status in {401, 403}:
        return EngineAuthenticationError(f"{says} (THOTHY_ENGINE_TOKEN is its API key)")
    if status in {408, 429, 502, 503, 504}:
        return BusyError(says, _seconds(retry_after))
    if status == 404 or status < 400:  # a wrong model or address, not the request's fault
        return ConnectionLostError(says)
    if status >= 500:
        return EngineError(says)
    return PromptTooLongError(says) if _TOO_LONG.search(says) else InvalidRequestError(says, field)


def error_of(error: Any) -> EngineError:
    """The error in the middle of a stream."""
    says = error if isinstance(error, str) else str(error.get("message") or error)
    code = None if isinstance(error, str) else error.get("code")
    if isinstance(code, int) and 400 <= code < 500:
        return InvalidRequestError(says)
    return EngineError(f"the server failed: {one_line(ValueError(says), 500)}")


def _seconds(retry_after: str | None) -> float | None:
    """The seconds of a Retry-After header; for dates, the client uses its own pauses."""
    try:
        return max(0.0, min(float(retry_after or "x"), MAX_PAUSE))
    except ValueError:
        return None
