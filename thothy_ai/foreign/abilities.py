"""What a server can do, found by asking it: names and versions say little, and many servers ignore unknown fields."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from thothy_ai.engine.api.errors import EngineError, InvalidRequestError, ProtocolError
from thothy_ai.foreign.replies import piece_of

CHAT, TEXT = "/chat/completions", "/completions"
# Fields beyond the smallest common set, with a value that says whether a server takes them.
FIELDS: dict[str, Any] = {
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "stop": ["\n\n\n"],
    "logit_bias": {"1": 0.0},
    "top_k": 40,
    "min_p": 0.01,
    "repetition_penalty": 1.01,
    "min_tokens": 1,
    "ignore_eos": False,
    "stop_token_ids": [0],
    "chat_template_kwargs": {"enable_thinking": False},
}
_WORD = "zq7"  # a word that no model answers to a greeting
_SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "enum": [_WORD]}},
    "required": ["word"],
    "additionalProperties": False,
}
_HELLO = [{"role": "user", "content": "Say hello. (Not as JSON.)"}]
_DICE = [{"role": "user", "content": "Write twenty random words."}]
Ask = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]  # path and body to the answer; raises EngineError


class SchemaForm(Enum):
    """How a schema is passed; the first that a server honours is used."""

    JSON_SCHEMA = "response_format json_schema"
    STRUCTURED_OUTPUTS = "structured_outputs"  # vLLM's own
    GUIDED_JSON = "guided_json"  # of vLLM until 2025
    JSON_OBJECT = "response_format json_object"  # some JSON object: the schema is in the prompt
    NONE = "none"

    @property
    def binds(self) -> bool:
        """Whether this form guarantees a matching text."""
        return self not in {SchemaForm.JSON_OBJECT, SchemaForm.NONE}

    def fields(self, schema: Any) -> dict[str, Any]:
        """The fields of a request that pass the schema."""
        match self:
            case SchemaForm.JSON_SCHEMA:
                named = {"name": "answer", "schema": schema, "strict": True}
                return {"response_format": {"type": "json_schema", "json_schema": named}}
            case SchemaForm.STRUCTURED_OUTPUTS:
                return {"structured_outputs": {"json": schema}}
            case SchemaForm.GUIDED_JSON:
                return {"guided_json": schema}
            case SchemaForm.JSON_OBJECT:
                return {"response_format": {"type": "json_object"}}
            case SchemaForm.NONE:
                return {}


@dataclass(frozen=True, slots=True)
class Abilities:
    """`limit` is the field that bounds the output. `fields` are those of `FIELDS` that the server takes."""

    limit: str = "max_tokens"
    schema: SchemaForm = SchemaForm.NONE
    fields: frozenset[str] = frozenset()
    usage: bool = False  # usage in streams
    seeds: bool = False
    logprobs: bool = False
    token_prompts: bool = False
    top_k_off: int | None = None  # the value of `top_k` that switches it off

    @property
    def lacks(self) -> list[str]:
        """The server's missing abilities and their consequences. Priorities are never sent: servers disagree about
        their direction.
        """
        found = []
        if not self.schema.binds:
            weak = "it promises a JSON object alone" if self.schema is SchemaForm.JSON_OBJECT else "it takes none"
            found.append(f"schemas ({weak}: they are in the prompt, and more outputs are rejected)")
        if not self.seeds:
            found.append("seeds (the same seed gives another text)")
        if not self.logprobs:
            found.append("log-probabilities (of several candidates, the first are taken)")
        if not self.token_prompts:
            found.append("token ids as prompts")
        if not self.usage:
            found.append("usage in streams (tokens are estimated by the length of texts)")
        if missing := sorted(FIELDS.keys() - self.fields):
            found.append(f"{', '.join(missing)} (left out of requests)")
        return found


async def find_abilities(ask: Ask, model: str) -> Abilities:
    """Ask a server about this model, in about twenty short requests. Raises the `EngineError` of the plainest one."""

    async def accepts(**fields: Any) -> dict[str, Any] | None:
        """The answer to a greeting with these fields; None if the server refuses it."""
        try:
            return await ask(CHAT, {**plain, **fields})
        except (InvalidRequestError, ProtocolError):
            return None
        except EngineError as error:
            if type(error) is EngineError:  # an internal error, which a field may have caused
                return None
            raise

    plain: dict[str, Any] = {"model": model, "messages": _HELLO, "temperature": 0.0}
    limit = "max_tokens" if await accepts(max_tokens=4) else "max_completion_tokens"
    plain[limit] = 4
    await ask(CHAT, plain)

    schema = await _schema_form(lambda fields: accepts(**{limit: 40}, **fields))
    if await accepts(**FIELDS):
        fields = frozenset(FIELDS)
    else:
        taken = await asyncio.gather(*(accepts(**{name: value}) for name, value in FIELDS.items()))
        fields = frozenset(name for name, answer in zip(FIELDS, taken, strict=True) if answer)
    off = [value for value in (-1, 0) if "top_k" in fields and await accepts(top_k=value)]
    streamed = await accepts(stream=True, stream_options={"include_usage": True})
    dice = {"messages": _DICE, "temperature": 1.0, limit: 16}
    first, again, logprobs, tokens = await asyncio.gather(
        accepts(**dice, seed=7),
        accepts(**dice, seed=7),
        accepts(logprobs=True),
        _takes_tokens(ask, model),
    )
    return Abilities(
        limit=limit,
        schema=schema,
        fields=fields,
        seeds=first is not None and again is not None and piece_of(first).text == piece_of(again).text,
        logprobs=logprobs is not None and bool(piece_of(logprobs).logprobs),
        token_prompts=tokens,
        usage=bool(streamed and streamed.get("usage")),
        top_k_off=off[0] if off else None,
    )


async def _schema_form(accepts: Callable[[dict[str, Any]], Awaitable[dict[str, Any] | None]]) -> SchemaForm:
    """The first form that has an effect, since servers ignore unknown fields."""
    for form in SchemaForm:
        if form is SchemaForm.NONE:
            break
        wish = {} if form.binds else {"messages": [{"role": "user", "content": "Say hello, as a JSON object."}]}
        if (answer := await accepts({**wish, **form.fields(_SCHEMA)})) is None:
            continue
        if not form.binds or _matches(piece_of(answer).text):
            return form
    return SchemaForm.NONE


def _matches(text: str) -> bool:
    try:
        return bool(json.loads(text) == {"word": _WORD})
    except (ValueError, RecursionError):
        return False


async def _takes_tokens(ask: Ask, model: str) -> bool:
    try:
        return bool(await ask(TEXT, {"model": model, "prompt": [1, 2, 3], "max_tokens": 1, "temperature": 0.0}))
    except EngineError:
        return False
