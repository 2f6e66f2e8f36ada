"""Requests, infos and stats survive the wire, also between versions; a malformed one is a typed error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.travelled import ASKING, RESULT, travelled
from thothy_ai.engine.api import (
    AbandonedStats,
    BeamSearch,
    BlockStats,
    CoreStats,
    Delta,
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
from thothy_ai.engine.wire.frames import (
    fields_of,
    output_parts,
    read_info,
    read_request,
    read_stats,
    request_fields,
    stats_fields,
)
from thothy_ai.engine.wire.protocol import Submit

REQUEST = GenerationRequest(
    id="job/1",
    messages=(Message("system", "be brief"), Message("user", "lone \ud800 and NUL \0")),
    sampling=SamplingParams(max_tokens=7, temperature=0.5, top_k=3, seed=2**62, stop=("a", "b")),
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
BEST_OF = GenerationRequest(id="job/2", text="x", sampling=replace(ASKING, temperature=0.5), n=2, best_of=5)
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


@pytest.mark.parametrize("request_", [REQUEST, BEST_OF, BEAMS])
def test_requests_come_back_as_they_were(request_: GenerationRequest) -> None:
    submit = travelled(Submit(request_.id, request_fields(request_)))
    assert isinstance(submit, Submit)
    assert read_request(submit.fields) == request_


def test_infos_and_stats_come_back_as_they_were() -> None:
    assert read_info(fields_of(INFO)) == INFO
    assert read_stats(stats_fields(STATS)) == STATS


def test_a_client_that_cannot_read_the_reason_repetition_never_gets_it() -> None:
    fields = request_fields(REQUEST)
    del fields["stop_repetition"], fields["report_after"], fields["report_again"]
    older = read_request(fields)
    assert (older.stop_repetition, older.report_after, older.report_again) == (False, 0, False)


def test_a_client_that_asks_for_nothing_new_sends_and_gets_nothing_new() -> None:
    """Of an earlier version, it neither names the fields nor reads them."""
    fields = request_fields(REQUEST)
    for name in ("n", "best_of", "beam_search"):
        del fields[name]
    new = ("min_tokens", "stop_token_ids", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs")
    fields["sampling"] = {name: value for name, value in fields["sampling"].items() if name not in new}
    assert read_request(fields) == REQUEST
    assert output_parts(Delta("a", "x", (1,))) == ("delta", "a", "x", (1,))


def test_usage_and_stats_are_flat_on_the_wire() -> None:
    """The names are those that peers of this version know."""
    _, result = output_parts(RESULT)
    assert isinstance(result, dict)
    assert list(result) == [
        *("id", "text", "token_ids", "finish_reason"),
        *("prompt_tokens", "cached_tokens", "output_tokens", "compute_seconds", "preemptions"),
    ]
    fields = stats_fields(replace(STATS, text=TextStats(requests_refused=1)))
    assert fields["requests_refused"] == 6
    known = (
        "running waiting batch_size blocks_total blocks_used blocks_cached memory_used_bytes memory_total_bytes "
        "memory_planned_bytes steps requests_finished requests_aborted requests_refused preemptions prompt_tokens "
        "cached_tokens prefill_tokens decode_tokens output_tokens busy_seconds prefill_seconds decode_seconds "
        "mask_seconds wait_seconds replayed_steps attributed_seconds gap_seconds orphans orphans_dropped "
        "repetitions saved_tokens"
    )
    assert fields.keys() == set(known.split())


def test_a_newer_peer_may_send_more_and_an_older_one_less() -> None:
    newer = request_fields(REQUEST) | {"novelty": 1}
    newer["sampling"] |= {"novelty": 2}
    assert read_request(newer) == REQUEST
    assert read_request({"id": "a", "text": "t"}) == GenerationRequest("a", text="t", stop_repetition=False)
    first = {name: field for name, field in request_fields(REQUEST).items() if name not in {"priority", "deadline"}}
    assert read_request(first) == replace(REQUEST, priority=0, deadline=None)
    assert read_stats({"running": 2, "novelty": 3}) == EngineStats(SchedulerStats(running=2))
    with pytest.raises(ProtocolError):
        read_info({"session_id": "only"})


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
    "fields",
    [
        {},
        {"id": 5},
        {"id": "a", "text": b"bytes"},
        {"id": "a", "token_ids": ["x"]},
        {"id": "a", "token_ids": 5},
        {"id": "a", "messages": [["user"]]},
        {"id": "a", "messages": [["user", None]]},
        {"id": "a", "messages": "hello"},
        {"id": "a", "sampling": []},
        {"id": "a", "schema": {}},
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
