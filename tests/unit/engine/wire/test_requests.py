"""Requests, infos and stats survive the wire; a malformed one is a typed error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.travelled import ASKING, travelled
from thothy_ai.engine.api import (
    AbandonedStats,
    BeamSearch,
    BlockStats,
    CoreStats,
    EarlyStopping,
    EngineInfo,
    EngineStats,
    GenerationRequest,
    MemoryStats,
    Message,
    SamplingParams,
    SchedulerStats,
    TextStats,
)
from thothy_ai.engine.api.errors import InvalidRequestError, ProtocolError
from thothy_ai.engine.wire.codec import Raw, pack, unpack
from thothy_ai.engine.wire.protocol import Submit

REQUEST = GenerationRequest(
    id="job/1",
    messages=(Message("system", "be brief"), Message("user", "smile 🙂 and NUL \0")),
    sampling=SamplingParams(max_tokens=7, temperature=0.5, top_k=3, seed=2**62),
    schema="{}",
    profile="hook",
    salt="tenant",
    stream=True,
    priority=-7,
    deadline=1.8e9,
    report_after=40,
    report_again=True,
    stop_repetition=True,
    template_options={"enable_thinking": False, "effort": "low", "depth": 3, "share": 0.5, "none": None},
)
BEST_OF = GenerationRequest(
    id="job/2", text="x", sampling=replace(ASKING, temperature=0.5, stop=("a", "b")), n=2, best_of=5
)
BEAMS = GenerationRequest(id="job/3", text="x", n=3, beam_search=BeamSearch(4, 0.5, EarlyStopping.NEVER))
INFO = EngineInfo("s", "m", "cpu", "float32", 16, 10, 100, 1.5)
STATS = EngineStats(
    SchedulerStats(running=3, preemptions=2),
    BlockStats(total=9, used=4, cached=1),
    CoreStats(busy_seconds=1.25, requests_refused=5),
    MemoryStats(used_bytes=7, total_bytes=8, planned_bytes=6),
    text=TextStats(repetitions=2, saved_tokens=300),
    abandoned=AbandonedStats(kept=2, dropped=1),
)


def request_fields(request: GenerationRequest) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(request)
    return fields


def read_request(fields: dict[str, Any]) -> GenerationRequest:
    return Submit(str(fields.get("id")), Raw(msgspec.msgpack.encode(fields))).request()


@pytest.mark.parametrize("request_", [REQUEST, BEST_OF, BEAMS])
def test_requests_come_back_as_they_were(request_: GenerationRequest) -> None:
    submit = travelled(Submit.of(request_))
    assert isinstance(submit, Submit)
    assert submit.request() == request_


def test_infos_and_stats_come_back_as_they_were() -> None:
    assert unpack(EngineInfo, pack(INFO)) == INFO
    assert unpack(EngineStats, pack(STATS)) == STATS


def test_unknown_fields_are_ignored_and_missing_ones_take_their_default() -> None:
    more = request_fields(REQUEST) | {"novelty": 1}
    more["sampling"] |= {"novelty": 2}
    assert read_request(more) == REQUEST
    assert read_request({"id": "a", "text": "t"}) == GenerationRequest("a", text="t")
    less = {name: field for name, field in request_fields(REQUEST).items() if name not in {"priority", "deadline"}}
    assert read_request(less) == replace(REQUEST, priority=0, deadline=None)
    stats = Raw(msgspec.msgpack.encode({"scheduler": {"running": 2, "novelty": 3}, "novelty": {}}))
    assert unpack(EngineStats, stats) == EngineStats(SchedulerStats(running=2))
    with pytest.raises(ProtocolError):
        unpack(EngineInfo, Raw(msgspec.msgpack.encode({"session_id": "only"})))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("top_k", 1.5),
        ("max_tokens", 0),
        ("max_tokens", True),
        ("seed", -1),
        ("stop", [""]),
        ("stop", [5]),
        ("stop", 5),
    ],
)
def test_a_bad_parameter_is_named(field: str, value: object) -> None:
    fields = request_fields(REQUEST)
    fields["sampling"] |= {field: value}
    with pytest.raises(InvalidRequestError):
        read_request(fields)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sampling": {"max_tokens": 0}}, "max_tokens"),
        ({"sampling": {"stop": [""]}}, "stop"),
        ({"sampling": {"logit_bias": [{"token": 1, "value": 1}, {"token": 1, "value": 2}]}}, "logit_bias"),
        ({"sampling": {"logprobs": 20, "max_tokens": 2_000_000}}, "logprobs"),
        ({"schema": "{}", "sampling": {"stop_token_ids": [1]}}, "stop_token_ids"),
        ({"n": 0}, "n"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"priority": 5_000}, "priority"),
        ({"template_options": {"messages": 1}}, "template_options"),
        ({"tools": {"definitions": []}}, "tools"),
        ({"kv_budget": 0}, "kv_budget"),
        ({"kv_budget": 2**31}, "kv_budget"),
        ({"kv_budget": 2048, "text": None, "pairs": [["a", "b"]]}, "kv_budget"),
        ({"kv_budget": 2048, "n": 2, "sampling": {"temperature": 1.0}}, "kv_budget"),
        ({"kv_budget": 2048, "beam_search": {"width": 4}}, "kv_budget"),
    ],
)
def test_a_refusal_says_which_field_is_to_blame(fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read_request({"id": "a", "text": "t", **fields})
    assert refused.value.field == field


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"id": 5},
        {"id": "a", "text": b"bytes"},
        {"id": "a", "token_ids": ["x"]},
        {"id": "a", "token_ids": 5},
        {"id": "a", "messages": [["user", "x"]]},
        {"id": "a", "messages": [{"role": "user"}]},
        {"id": "a", "messages": [{"role": "user", "content": None}]},
        {"id": "a", "messages": "hello"},
        {"id": "a", "sampling": []},
        {"id": "a", "schema": {}},
        {"id": "a", "text": "t", "kv_budget": 2048.5},
        {"id": "a", "stream": 1},
        {"id": "a", "priority": True},
        {"id": "a", "priority": 0.5},
        {"id": "a", "priority": 2**40},
        {"id": "a", "deadline": "soon"},
        {"id": "a", "deadline": False},
        {"id": "a", "deadline": float("nan")},
        {"id": "a", "deadline": float("-inf")},
    ],
)
def test_a_malformed_request_is_an_invalid_one(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        read_request(fields)
