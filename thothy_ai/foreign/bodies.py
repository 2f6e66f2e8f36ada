"""A request as the JSON that a server takes."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any

from thothy_ai.engine.api import GenerationRequest, Message, SamplingParams
from thothy_ai.engine.api.errors import InvalidRequestError
from thothy_ai.foreign.abilities import CHAT, TEXT, Abilities

_FENCED = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.S)
_INSTRUCTION = "\n\nAnswer with one JSON value that matches this JSON Schema, and with nothing else:\n"


def path_of(request: GenerationRequest) -> str:
    return CHAT if request.messages else TEXT


def body_of(request: GenerationRequest, candidate: int, model: str, can: Abilities) -> dict[str, Any]:
    """The body for one of a request's texts; InvalidRequestError if the server lacks a needed ability."""
    sampling = request.sampling
    body: dict[str, Any] = {"model": model, "stream": True, **_prompt(request, can), **_sampling(sampling, can)}
    if can.usage:
        body["stream_options"] = {"include_usage": True}
    if sampling.seed is not None:
        body["seed"] = candidate_seed(sampling.seed, candidate)
    if wants_logprobs(request) and can.logprobs:
        body["logprobs"] = True if request.messages else 1
    if request.template_options and "chat_template_kwargs" in can.fields:
        body["chat_template_kwargs"] = dict(request.template_options)
    if request.schema is not None:
        body |= can.schema.fields(json.loads(request.schema))
    return body


def wants_logprobs(request: GenerationRequest) -> bool:
    return request.sampling.logprobs is not None or request.candidates > request.n


def candidate_seed(seed: int, candidate: int) -> int:
    """The seed of one of several texts; the request's own for the first."""
    return seed if not candidate else int.from_bytes(sha256(f"{seed}/{candidate}".encode()).digest()[:8]) >> 1


def _prompt(request: GenerationRequest, can: Abilities) -> dict[str, Any]:
    if request.beam_search is not None:
        raise InvalidRequestError("beam_search is not possible on a server over HTTP", "beam_search")
    if request.token_ids:
        if not can.token_prompts:
            raise InvalidRequestError("token_ids: the server takes no token ids as a prompt", "token_ids")
        return {"prompt": list(request.token_ids)}
    wish = ""
    if request.schema is not None and not can.schema.binds:
        wish = f"{_INSTRUCTION}{request.schema}"
    if request.text is not None:
        return {"prompt": request.text + wish}
    messages = [_message(message) for message in request.messages]
    messages[-1]["content"] += wish
    if (tools := request.tools) is None:
        return {"messages": messages}
    only = {"type": "function", "function": {"name": tools.only}}
    return {
        "messages": messages,
        "tools": [json.loads(each) for each in tools.definitions],
        "tool_choice": only if tools.only else tools.choice.value,
        "parallel_tool_calls": tools.parallel,
    }


def _message(message: Message) -> dict[str, Any]:
    own = {"name": message.name, "tool_call_id": message.call_id, "reasoning_content": message.thoughts}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.calls
    ]
    said = {"tool_calls": calls} if calls else {}
    return {"role": message.role, "content": message.content, **said} | {key: text for key, text in own.items() if text}


def _sampling(sampling: SamplingParams, can: Abilities) -> dict[str, Any]:
    """The sampling fields that the server takes. Disabled ones are sent explicitly, against the model's defaults."""
    wanted: dict[str, Any] = {
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "min_p": sampling.min_p,
        "top_k": sampling.top_k or can.top_k_off,
        "min_tokens": sampling.min_tokens or None,
        "ignore_eos": sampling.ignore_eos or None,
        "stop": list(sampling.stop) or None,
        "stop_token_ids": list(sampling.stop_token_ids) or None,
        "logit_bias": {str(bias.token): bias.value for bias in sampling.logit_bias} or None,
    }
    taken = {name: value for name, value in wanted.items() if value is not None and name in can.fields}
    return {can.limit: sampling.max_tokens, "temperature": sampling.temperature, "top_p": sampling.top_p, **taken}


def expected(request: GenerationRequest, can: Abilities, text: str) -> str:
    """The text as its reader expects it: if the schema did not bind, without the fence that models put around JSON."""
    if request.schema is None or can.schema.binds:
        return text
    fenced = _FENCED.fullmatch(text)
    return fenced.group(1) if fenced else text
