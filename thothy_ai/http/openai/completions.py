"""`POST /v1/completions`: texts or tokens to their continuations."""

from __future__ import annotations

import codecs
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from thothy_ai.engine.api import Choice, Delta, EngineInfo, GenerationRequest, GenerationResult
from thothy_ai.http.errors import COMPLETION, ApiError
from thothy_ai.http.openai.events import DONE, event
from thothy_ai.http.openai.fields import BEGINNING, GenerationBody, Text, Token, parsed
from thothy_ai.http.openai.objects import FINISHED, finite, spelled, usage_of
from thothy_ai.http.openai.response_format import ResponseFormat

MAX_PROMPTS = 64
LOGPROBS = 5  # OpenAI's limit
DEFAULT_TOKENS = 16  # OpenAI's

Tokens = Annotated[list[Token], Field(min_length=1, fail_fast=True)]


class CompletionBody(GenerationBody):
    """A request for completions of one or more prompts."""

    prompt: Text | Tokens | Annotated[list[Text] | list[Tokens], Field(min_length=1, max_length=MAX_PROMPTS)]
    logprobs: Annotated[int, Field(ge=0, le=LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None
    echo: Literal[False] | None = None

    @property
    def prompts(self) -> Sequence[str | Sequence[int]]:
        """One or more texts or lists of token ids."""
        given: Any = self.prompt
        return given if isinstance(given, list) and not isinstance(given[0], int) else [given]


class TextCompletion:
    """Implements `Wanted` for completions. The choices of the prompts follow each other."""

    def __init__(self, body: object, tenant: str) -> None:
        """ApiError for a body that is none."""
        self._body = parsed(CompletionBody, body)
        self._tenant = tenant
        self._schema = self._body.response_format.schema_text if self._body.response_format else None
        self._prompts = self._body.prompts
        self.model = self._body.model
        self.streams = bool(self._body.stream)
        self.wants_tokens = self._body.logprobs is not None
        self.sequences, self.prompts = self._body.sequences, len(self._prompts)
        self.fields, self.done = COMPLETION._replace(limit=self._body.limit[0] or COMPLETION.limit), DONE
        self.beginning = str(self._prompts[0][:BEGINNING])
        self._n = self._body.n or 1
        self._head: dict[str, Any] = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.model,
        }
        self._offsets: dict[int, _Offsets] = {}  # by choice

    def requests(self, info: EngineInfo, vocabulary: Sequence[bytes]) -> Sequence[GenerationRequest]:
        self._vocabulary = vocabulary
        self._head["system_fingerprint"] = f"fp_{info.session_id}"
        return [
            self._body.generation(
                f"{self._head['id']}-{number}",
                context=info.max_context,
                tenant=self._tenant,
                logprobs=self._body.logprobs,
                limit=self._body.limit[1] or DEFAULT_TOKENS,
                schema=self._schema,
                profile="http/completion",
                **({"text": prompt} if isinstance(prompt, str) else {"token_ids": tuple(prompt)}),
            )
            for number, prompt in enumerate(self._prompts)
        ]

    def whole(self, results: Sequence[GenerationResult]) -> object:
        return {**self._head, "choices": list(self._ended(results)), "usage": usage_of(results)}

    def opening(self) -> bytes:
        return b""

    def written(self, prompt: int, deltas: Sequence[Delta]) -> bytes:
        first, copies = prompt * self._n, self._body.copies
        return b"".join(
            self._chunk(self._choice(index, delta.text, delta))
            for delta in deltas
            for index in range(first + delta.choice, first + delta.choice + copies)
        )

    def closing(self, results: Sequence[GenerationResult]) -> bytes:
        ends = [self._chunk({**choice, "text": "", "logprobs": None}) for choice in self._ended(results)]
        if self._body.wants_usage:
            ends.append(event({**self._head, "choices": [], "usage": usage_of(results)}))
        return b"".join(ends)

    def failed(self, error: ApiError) -> bytes:
        return event(error.body)

    def _ended(self, results: Sequence[GenerationResult]) -> Iterator[dict[str, Any]]:
        choices = [choice for result in results for choice in result.choices * self._body.copies]
        for index, choice in enumerate(choices):
            yield {**self._choice(index, choice.text, choice), "finish_reason": FINISHED[choice.finish_reason]}

    def _choice(self, index: int, text: str, part: Choice | Delta) -> dict[str, Any]:
        logprobs = None
        if self._body.logprobs is not None:
            logprobs = self._logprobs(self._offsets.setdefault(index, _Offsets()), part)
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}

    def _logprobs(self, offsets: _Offsets, part: Choice | Delta) -> dict[str, Any]:
        top = self._body.logprobs or 0
        names = [spelled(token, self._vocabulary) for token in part.token_ids]
        return {
            "tokens": [name.decode(errors="replace") for name in names],
            "token_logprobs": [0.0 if drawn is None else finite(drawn.logprob) for drawn in part.logprobs],
            "top_logprobs": [
                {
                    spelled(token, self._vocabulary).decode(errors="replace"): finite(logprob)
                    for token, logprob in list(zip(drawn.top_tokens, drawn.top_logprobs, strict=True))[:top]
                }
                if drawn
                else {}
                for drawn in part.logprobs
            ],
            "text_offset": [offsets.of_next(name) for name in names],
        }

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        usage = {"usage": None} if self._body.wants_usage else {}
        return event({**self._head, "choices": [choice], **usage})


class _Offsets:
    """Where tokens begin in their text, counted in characters; a token may hold a part of one."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at = 0

    def of_next(self, token: bytes) -> int:
        at = self._at
        self._at += len(self._decoder.decode(token))
        return at
