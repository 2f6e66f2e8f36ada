"""Servers over HTTP as engines: our own door, and others that are old, poor or broken."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.answering_backend import AnsweringBackend
from tests.support.door import door
from tests.support.fake_server import MODELS, FakeServer, Reply, chunk, message, refused, running, usage
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from thothy_ai.engine.api import FinishReason, GenerationRequest, Message, SamplingParams, ToolCall, ToolChoice, Tools
from thothy_ai.engine.api.errors import (
    ConnectionLostError,
    EngineAuthenticationError,
    EngineError,
    InvalidRequestError,
    PromptTooLongError,
    ProtocolError,
    UnknownAdapterError,
)
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.foreign import DeclaredEngine, client, connect
from thothy_ai.foreign.abilities import FIELDS, SchemaForm
from thothy_ai.foreign.client import ForeignEngineClient

SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
TEXTS = ("Hello", " there", ", you")


def asked(request_id: str = "r", **more: Any) -> GenerationRequest:
    sampling = SamplingParams(max_tokens=50, temperature=0.7, seed=2**62 + 1, **more.pop("sampling", {}))
    return GenerationRequest(request_id, messages=(Message("user", "Hi"),), sampling=sampling, **more)


def perfect(path: str, body: Mapping[str, Any]) -> Reply:
    """What a server answers that can do all."""
    if path == "/completions":
        return 200, {"choices": [{"text": "x", "finish_reason": "stop"}]}
    form = body.get("response_format", {})
    text = "".join(TEXTS)
    if form.get("type") == "json_schema":
        text = '{"word": "zq7"}' if "zq7" in json.dumps(form) else '{"a": 1}'
    if body.get("stream"):
        return iter([chunk(piece) for piece in ([text] if form else TEXTS)] + [chunk(finish="stop"), usage(9, 7)])
    return message(text, logprobs={"content": [{"logprob": -0.5}]} if body.get("logprobs") else None)


def old_vllm(path: str, body: Mapping[str, Any]) -> Reply:
    """It ignores what it does not know, but for three fields, and binds outputs by `guided_json` only."""
    if body.get("min_p") or "chat_template_kwargs" in body or body.get("logprobs"):
        return refused("no such field")
    plain = {name: value for name, value in body.items() if name not in {"response_format", "stream_options"}}
    if guided := plain.pop("guided_json", None):
        plain["response_format"] = {"type": "json_schema", "json_schema": guided}
    return perfect(path, plain)


def poor(path: str, body: Mapping[str, Any]) -> Reply:
    """It knows messages and streams, and the newer name of the limit."""
    if path != "/chat/completions" or body.keys() - {"model", "messages", "stream", "max_completion_tokens",
                                                     "temperature", "top_p", "seed"}:  # fmt: skip
        return refused("Extra inputs are not permitted", 422)
    if "JSON Schema" in body["messages"][-1]["content"]:
        return iter([chunk('```json\n{"a": 1}\n```'), chunk(finish="stop")])
    return perfect(path, body)


def use(fake: FakeServer, body: Callable[[ForeignEngineClient], Awaitable[Any]], **declared: Any) -> Any:
    """Run a test's coroutine with a client of this server."""

    async def main() -> Any:
        engine = ForeignEngineClient(fake.url, "sk-1", DeclaredEngine(**declared))
        try:
            async with asyncio.timeout(PATIENCE):
                await engine.info()
                fake.requests.clear()
                return await body(engine)
        finally:
            await engine.close()

    return asyncio.run(main())


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with running(FakeServer(perfect)) as fake:
        yield fake


async def result_of(engine: ForeignEngineClient, request: GenerationRequest) -> Any:
    return await (await engine.submit(request)).result()


def then(fake: FakeServer, answer: Callable[[Mapping[str, Any]], Reply]) -> None:
    """From now on, streams of a perfect server are answered with this."""
    fake.answer = lambda path, body: answer(body) if body.get("stream") else perfect(path, body)


def test_a_request_goes_out_whole_and_its_pieces_come_back(fake: FakeServer) -> None:
    async def body(engine: ForeignEngineClient) -> None:
        info = await engine.info()
        assert (info.model, info.model_name, info.max_context) == ("org/Model-8B", "Model-8B", 4096)
        assert (info.declared_gpus, info.device) == (2, f"2 declared GPUs at {fake.url[7:-3]}")
        sampling = {"top_k": 5, "stop": ("END",), "frequency_penalty": 0.5, "min_tokens": 3}
        generation = await engine.submit(asked(sampling=sampling, template_options={"enable_thinking": False}))
        assert [delta.text async for delta in generation] == [*TEXTS]
        result = await generation.result()
        assert (result.text, result.finish_reason) == ("".join(TEXTS), FinishReason.STOP)
        assert (result.usage.prompt_tokens, result.usage.output_tokens, len(result.token_ids)) == (9, 7, 7)
        core = (await engine.stats()).core
        assert 0 < core.direct_seconds == result.usage.compute_seconds == pytest.approx(core.busy_seconds)
        [(path, sent)] = fake.requests
        assert path == "/v1/chat/completions"
        assert sent == {
            "model": "org/Model-8B", "messages": [{"role": "user", "content": "Hi"}], "stream": True,
            "stream_options": {"include_usage": True}, "max_tokens": 50, "temperature": 0.7, "top_p": 1.0,
            "top_k": 5, "min_p": 0.0, "repetition_penalty": 1.0, "frequency_penalty": 0.5, "presence_penalty": 0.0,
            "stop": ["END"], "min_tokens": 3, "seed": 2**62 + 1, "chat_template_kwargs": {"enable_thinking": False},
        }  # fmt: skip

    use(fake, body, gpus=2)
    assert fake.keys == {"Bearer sk-1"}


@pytest.mark.parametrize(
    ("answer", "form", "sent"),
    [
        (perfect, SchemaForm.JSON_SCHEMA, "response_format"),
        (old_vllm, SchemaForm.GUIDED_JSON, "guided_json"),
        (poor, SchemaForm.NONE, None),
    ],
)
def test_a_schema_goes_out_in_the_form_that_has_an_effect(
    fake: FakeServer, answer: Callable[..., Reply], form: SchemaForm, sent: str | None
) -> None:
    fake.answer = answer

    async def body(engine: ForeignEngineClient) -> None:
        can = await engine.abilities()
        assert can.schema is form
        result = await result_of(engine, asked(schema=SCHEMA))
        assert json.loads(result.text) == {"a": 1}, "without the fence around it"
        [(_, request)] = fake.requests
        assert sent is None or sent in request
        assert ("JSON Schema" in request["messages"][0]["content"]) == (not can.schema.binds)

    use(fake, body)


def test_what_a_server_cannot_do_is_found_and_left_out(fake: FakeServer) -> None:
    async def abilities(engine: ForeignEngineClient) -> Any:
        return await engine.abilities()

    assert use(fake, abilities).lacks == []
    fake.answer = old_vllm
    can = use(fake, abilities)
    assert FIELDS.keys() - can.fields == {"min_p", "chat_template_kwargs"}
    assert (can.logprobs, can.usage, can.token_prompts, can.limit) == (False, True, True, "max_tokens")
    fake.answer = poor
    can = use(fake, abilities)
    assert (can.fields, can.limit, can.token_prompts) == (frozenset(), "max_completion_tokens", False)
    assert len(can.lacks) == 5

    async def refusals(engine: ForeignEngineClient) -> None:
        with pytest.raises(InvalidRequestError, match="token_ids"):
            await engine.submit(GenerationRequest("t", token_ids=(1, 2)))

    use(fake, refusals)


def test_of_several_candidates_the_likeliest_are_taken(fake: FakeServer) -> None:
    seeds: list[int] = []

    def answer(body: Mapping[str, Any]) -> Reply:
        seeds.append(body["seed"])
        logprob = {"logprobs": {"content": [{"logprob": -float(len(seeds))}]}}
        event = chunk(f"text {len(seeds)}", "stop")
        event["choices"][0] |= logprob
        return iter([event, usage(10, 4)])

    async def body(engine: ForeignEngineClient) -> None:
        then(fake, answer)
        result = await result_of(engine, asked(n=2, best_of=4))
        assert [choice.mean_logprob for choice in result.choices] == [-1.0, -2.0]
        assert (result.usage.prompt_tokens, result.usage.output_tokens) == (10, 16)
        assert len(set(seeds)) == 4
        assert 2**62 + 1 in seeds, "the first is what it would be alone"

    use(fake, body)


def test_an_abort_closes_the_stream(fake: FakeServer) -> None:
    never = threading.Event()

    async def body(engine: ForeignEngineClient) -> None:
        then(fake, lambda body: iter([chunk("word "), chunk("word "), never]))
        generation = await engine.submit(asked(report_after=2))
        assert await generation.early_text() == "word word "
        await generation.abort()
        result = await generation.result()
        assert (result.finish_reason, result.text) == (FinishReason.ABORTED, "word word ")
        assert result.usage.output_tokens >= 2
        at_once = await engine.submit(asked("second"))
        await at_once.abort()
        assert (await at_once.result()).finish_reason is FinishReason.ABORTED

    use(fake, body)
    assert fake.gone.wait(PATIENCE)


@pytest.mark.parametrize(
    ("reply", "error", "says"),
    [
        (lambda: iter([chunk("a"), None]), ConnectionLostError, "ended a stream"),
        (lambda: iter([chunk("a")]), ConnectionLostError, "without saying why"),
        (lambda: iter([chunk("a"), {"error": {"message": "boom", "code": 500}}]), EngineError, "boom"),
        (lambda: iter([chunk("a"), {"error": {"message": "bad", "code": 400}}]), InvalidRequestError, "bad"),
        (lambda: iter(["{rubbish"]), ProtocolError, "is not JSON"),
        (lambda: iter([{"choices": [{"delta": {"content": 5}}]}]), ProtocolError, "is not a completion"),
        (lambda: iter([["a list"]]), ProtocolError, "is not a completion"),
        (lambda: refused("top_p is out of range"), InvalidRequestError, "top_p"),
        (lambda: refused("This model's maximum context length is 10 tokens"), PromptTooLongError, "context"),
        (lambda: refused("key", 401), EngineAuthenticationError, "THOTHY_ENGINE_TOKEN"),
        (lambda: refused("crashed", 500), EngineError, "crashed"),
        (lambda: (404, {"detail": "Not Found"}), ConnectionLostError, "Not Found"),
        (lambda: iter([chunk("a"), threading.Event()]), ConnectionLostError, "silent"),
    ],
)
def test_each_failure_is_one_that_the_queue_knows(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch, reply: Callable[[], Reply], error: type[EngineError], says: str
) -> None:
    lost = 0

    def on_lost() -> None:
        nonlocal lost
        lost += 1

    async def body(engine: ForeignEngineClient) -> None:
        then(fake, lambda body: reply())
        engine.on_lost = on_lost
        if says == "silent":
            engine._server.silence_seconds = 0.5
        with pytest.raises(error, match=says) as raised:
            await result_of(engine, asked())
        assert type(raised.value) is error
        assert lost == issubclass(error, ConnectionLostError)
        fake.answer, engine._server.silence_seconds = perfect, PATIENCE
        assert (await result_of(engine, asked("next"))).text == "".join(TEXTS)

    if says == "silent":  # comments are no silence, so that it is quiet
        monkeypatch.setattr("tests.support.fake_server.WAITING", b"")
    use(fake, body)


def test_a_busy_server_is_asked_again_and_a_limit_that_it_refuses_is_left_to_it(fake: FakeServer) -> None:
    async def body(engine: ForeignEngineClient) -> None:
        replies = iter([refused("busy", 429), refused("busy", 503), refused("maximum context length"), None])
        fake.headers = {"retry-after": "0.01"}
        then(fake, lambda body: next(replies) or perfect("/chat/completions", body))
        assert (await result_of(engine, asked())).text == "".join(TEXTS)
        assert ["max_tokens" in sent for _, sent in fake.requests] == [True, True, True, False]

    use(fake, body)


def test_a_server_that_only_refuses_counts_as_away(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BUSY_SECONDS", 0.0)

    async def body(engine: ForeignEngineClient) -> None:
        then(fake, lambda body: refused("busy", 503))
        generation = await engine.submit(asked())
        while engine._held == 0 or not fake.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with pytest.raises(ConnectionLostError, match="takes no requests"):
            await engine.info()
        await generation.abort()
        assert (await generation.result()).finish_reason is FinishReason.ABORTED

    use(fake, body)


def test_a_text_without_a_bound_is_cut(fake: FakeServer) -> None:
    async def body(engine: ForeignEngineClient) -> None:
        then(fake, lambda body: iter([chunk("word ") for _ in range(500)]))
        result = await result_of(engine, asked())
        assert (result.finish_reason, len(result.text.split())) == (FinishReason.LENGTH, 50)

    use(fake, body)


def test_a_server_that_does_not_stream_answers_whole(fake: FakeServer) -> None:
    async def body(engine: ForeignEngineClient) -> None:
        then(fake, lambda body: message("all at once"))
        assert (await result_of(engine, asked())).text == "all at once"

    use(fake, body)


@pytest.mark.parametrize(
    ("models", "declared", "says"),
    [
        ({"data": [{"id": "a"}, {"id": "b"}]}, {}, "THOTHY_ENGINE_MODEL to one of a, b"),
        (MODELS, {"model": "other"}, "no model other, but org/Model-8B"),
        ({"data": "x"}, {}, "no list of models"),
        ([], {}, "no list of models"),
    ],
)
def test_a_model_must_be_known(fake: FakeServer, models: Any, declared: dict[str, Any], says: str) -> None:
    fake.models = models
    with pytest.raises(ConnectionLostError, match=says):
        use(fake, lambda engine: engine.stats(), **declared)


def test_a_server_that_is_not_there() -> None:
    async def main() -> None:
        engine = connect("http://127.0.0.1:1/v1")
        await engine.start()
        with pytest.raises(ConnectionLostError, match="cannot be reached"):
            await engine.info()
        assert not engine.connected
        with pytest.raises(ConnectionLostError, match="cannot be reached"):
            await engine.submit(asked())
        await engine.close()

    asyncio.run(main())


def test_our_own_door_can_do_all(tmp_path: Path) -> None:
    engine = NullEngine()
    with door(engine, tmp_path) as address:

        async def body(engine: ForeignEngineClient) -> None:
            assert (await engine.abilities()).lacks == []
            result = await result_of(engine, asked(schema=SCHEMA, n=2))
            assert all(json.loads(choice.text).keys() == {"a"} for choice in result.choices)

        use(FakeServerAt(address), body)
    engine.stop()


def test_an_abort_reaches_the_engine_behind_our_door(tmp_path: Path) -> None:
    backend = AnsweringBackend(lambda request: ["Hello"])
    with door(backend, tmp_path) as address:

        async def body(engine: ForeignEngineClient) -> None:
            backend.hang = True
            generation = await engine.submit(asked())
            async for _ in generation.batches():
                break
            await generation.abort()

        use(FakeServerAt(address), body)
        assert backend.aborted.wait(PATIENCE)
        eventually(lambda: not backend.open)


class FakeServerAt(FakeServer):
    """A real one, at this address."""

    def __init__(self, address: str) -> None:
        super().__init__(perfect)
        self.url = f"{address}/v1"


def test_tools_go_out_and_calls_come_back(fake: FakeServer) -> None:
    definition = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    deltas: list[dict[str, Any]] = [
        {"reasoning_content": "Hm."},
        {"content": "So: "},
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": 1}'}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}]},
    ]
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    request = asked(
        tools=Tools((json.dumps(definition),), ToolChoice.REQUIRED, parallel=False), divided=True, stream=True
    )
    called = (Message("assistant", "", (ToolCall("f", "{}", "c"),), thoughts="Hm."), Message("tool", "x", call_id="c"))
    request = replace(request, messages=(*request.messages, *called))

    async def body(engine: ForeignEngineClient) -> None:
        then(fake, lambda _: iter([*events, chunk(finish="tool_calls"), usage(9, 7)]))
        generation = await engine.submit(request)
        gained = [delta async for delta in generation]
        result = await generation.result()
        assert (result.thoughts, result.text, result.finish_reason) == ("Hm.", "So: ", FinishReason.STOP)
        assert result.calls == (ToolCall("f", '{"a": 1}'), ToolCall("g", "{}"))
        assert [call.name for delta in gained for call in delta.calls] == ["f", "", "g"]

    use(fake, body)
    [(_, sent)] = fake.requests
    assert (sent["tools"], sent["tool_choice"], sent["parallel_tool_calls"]) == ([definition], "required", False)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert sent["messages"][1:] == [
        {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "Hm."},
        {"role": "tool", "content": "x", "tool_call_id": "c"},
    ]


def test_adapters_of_a_server_that_one_name_would_stand_for_are_left_out(
    fake: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    base = MODELS["data"][0]
    voices = [{"id": name, "parent": "org/Model-8B"} for name in ("a/acme", "b/acme", "b/nova")]
    fake.models = {"data": [base, *voices]}

    async def body(engine: ForeignEngineClient) -> None:
        for _ in range(2):
            await engine.info()
        assert [each.name for each in await engine.adapters()] == ["nova"]

    use(fake, body)
    said = [record.getMessage() for record in caplog.records if "acme" in record.getMessage()]
    assert said == ["jobs cannot ask for a/acme and b/acme: all would be named acme"]


def test_a_server_s_adapters_are_asked_for_by_its_names_for_them(fake: FakeServer) -> None:
    base, voice = MODELS["data"][0], {"id": "org/acme", "parent": "org/Model-8B"}
    fake.models = {"data": [base, voice]}

    async def body(engine: ForeignEngineClient) -> None:
        assert (await engine.info()).model == "org/Model-8B"  # the only one that is no adapter
        assert [each.name for each in await engine.adapters()] == ["acme"]
        before = (await engine.stats()).adapters
        for adapter, name in (("acme", "org/acme"), ("", "org/Model-8B")):
            await result_of(engine, asked(f"r{adapter}", adapter=adapter))
            assert fake.requests[-1][1]["model"] == name
        with pytest.raises(UnknownAdapterError, match="lists no adapter nova of org/Model-8B"):
            await engine.submit(asked("x", adapter="nova"))
        with pytest.raises(InvalidRequestError, match="loads its adapters itself"):
            await engine.load_adapter("nova", "/nova")
        fake.models = {"data": [base]}
        await engine.info()
        after = (await engine.stats()).adapters
        assert (before.loaded, after.loaded, after.changes - before.changes) == (1, 0, 1)

    use(fake, body)
