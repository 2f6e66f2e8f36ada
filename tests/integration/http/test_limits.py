"""KeyLimits of keys: the same in Redis and without it, for all doors together; and what a door answers."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from openai import OpenAI
from prometheus_client import REGISTRY
from sqlalchemy import Engine

from tests.support.answering_backend import AnsweringBackend
from tests.support.door import served_door
from tests.support.forwarder import forwarder
from tests.support.keyed_requests import HELLO, ROUTE, ask, code, made
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from tests.support.served_engine import served
from thothy_ai.db.api_keys import KeyLimits
from thothy_ai.http import limits as module
from thothy_ai.http.keys import Keys
from thothy_ai.http.limits import Limiter, Room, spelled
from thothy_ai.settings import Settings


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis is not away because a machine is busy."""
    monkeypatch.setattr(module, "ANSWER_SECONDS", 30.0)


@pytest.fixture
def doors(backend: AnsweringBackend, own: Settings, engine: Engine) -> Iterator[tuple[str, str]]:
    """Two of them before one engine."""
    with (
        served(backend, own.engine_url or ""),
        served_door(own, access=Keys(own, engine, None)) as one,
        served_door(own, access=Keys(own, engine, None)) as other,
    ):
        yield one, other


def test_requests_per_minute_are_shared_by_all_doors(doors: tuple[str, str], engine: Engine) -> None:
    key, began = made(engine, limits=KeyLimits(requests_per_minute=3)), time.monotonic()
    first = ask(doors[0], key)
    assert first.status_code == 200
    assert [first.headers[f"x-ratelimit-{part}-requests"] for part in ("limit", "remaining")] == ["3", "2"]
    assert first.headers["x-ratelimit-reset-requests"] == "20s"
    assert "x-ratelimit-limit-tokens" not in first.headers
    assert ask(doors[1], key).headers["x-ratelimit-remaining-requests"] == "1"
    models = httpx.get(f"{doors[1]}/v1/models", headers={"authorization": f"Bearer {key}"})
    assert (models.status_code, models.headers["x-ratelimit-remaining-requests"]) == (200, "0")
    for address in doors:
        refused = ask(address, key)
        assert code(refused) == (429, "rate_limit_exceeded")
        assert 19 - (time.monotonic() - began) <= int(refused.headers["retry-after"]) <= 20
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert "3 requests per minute" in refused.json()["error"]["message"]
    with (
        OpenAI(base_url=f"{doors[0]}/v1", api_key=key, max_retries=0) as client,
        pytest.raises(openai.RateLimitError) as limited,
    ):
        client.models.list()
    assert limited.value.type == "rate_limit_error"
    assert ask(doors[0], made(engine)).status_code == 200  # the limits are those of a key


def test_tokens_are_settled_after_the_answer(doors: tuple[str, str], engine: Engine) -> None:
    key = made(engine, limits=KeyLimits(tokens_per_minute=100))
    taken = 100 - int(ask(doors[0], key).headers["x-ratelimit-remaining-tokens"])
    assert taken == len(str(HELLO).replace(" ", "")) // 4
    eventually(lambda: ask(doors[1], key).status_code == 429)  # each took 60
    refused = ask(doors[1], key)
    assert int(refused.headers["x-ratelimit-remaining-tokens"]) < 100 - 60
    assert "100 tokens per minute" in refused.json()["error"]["message"]


@pytest.mark.parametrize("redis", [True, False])
def test_a_body_without_a_length_takes_its_tokens_before_it_runs(
    doors: tuple[str, str], backend: AnsweringBackend, engine: Engine, monkeypatch: pytest.MonkeyPatch, redis: bool
) -> None:
    if not redis:
        monkeypatch.setattr(Limiter, "_ask", never)
    key = made(engine, limits=KeyLimits(requests_per_minute=9, tokens_per_minute=100))
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    def ask_in_pieces(words: int) -> httpx.Response:
        body = json.dumps({**HELLO, "messages": [{"role": "user", "content": "word " * words}]}).encode()
        return httpx.post(f"{doors[0]}{ROUTE}", content=iter([body[:20], body[20:]]), headers=headers, timeout=PATIENCE)

    before = len(backend.requests)
    answer = ask_in_pieces(12)  # 131 bytes
    assert answer.status_code == 200
    left = [answer.headers.get_list(f"x-ratelimit-remaining-{name}") for name in ("requests", "tokens")]
    assert left == [["8"], ["68"]]
    refused = ask_in_pieces(1_000)
    assert code(refused) == (429, "rate_limit_exceeded")
    assert "100 tokens per minute" in refused.json()["error"]["message"]
    assert len(backend.requests) == before + 1


async def never(*_: object) -> None:
    """What a script answers while Redis is away."""


def test_gpu_seconds_of_a_day(doors: tuple[str, str], engine: Engine) -> None:
    key = made(engine, limits=KeyLimits(interactive_seconds_per_day=2.0))
    assert ask(doors[0], key).status_code == 200  # 1.5 s
    assert ask(doors[1], key).status_code == 200
    eventually(lambda: ask(doors[0], key).status_code == 429)
    refused = ask(doors[1], key)
    assert "2 GPU-seconds of requests for text per day" in refused.json()["error"]["message"]
    assert 0 < int(refused.headers["retry-after"]) <= 86_400


def test_requests_at_the_same_time(doors: tuple[str, str], backend: AnsweringBackend, engine: Engine) -> None:
    key = made(engine, limits=KeyLimits(concurrent_requests=1))
    backend.hang = True
    first = threading.Thread(target=ask, args=(doors[0], key))
    first.start()
    eventually(lambda: len(backend.open) == 1)
    assert code(ask(doors[1], key)) == (429, "rate_limit_exceeded")
    assert httpx.get(f"{doors[1]}/v1/models", headers={"authorization": f"Bearer {key}"}).status_code == 200
    backend.finish_all("x")
    first.join(PATIENCE)
    backend.hang = False
    eventually(lambda: ask(doors[1], key).status_code == 200)
    assert not backend.open


def test_bodies_are_read_only_of_requests_that_may_run(
    doors: tuple[str, str], engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = made(engine, limits=KeyLimits(requests_per_minute=3, tokens_per_minute=100))
    headers = {"authorization": f"Bearer {counted}", "content-type": "text/plain"}
    wrong = httpx.post(f"{doors[0]}{ROUTE}", content="x" * 200, headers=headers)
    assert code(wrong) == (415, "unsupported_media_type")
    left = [wrong.headers[f"x-ratelimit-remaining-{name}"] for name in ("requests", "tokens")]
    assert left == ["2", "50"]  # a quarter of its bytes, which it has back once it is refused
    monkeypatch.setattr("thothy_ai.http.asgi.LINGER_SECONDS", 0.0)
    key = made(engine, limits=KeyLimits(concurrent_requests=1))
    with closing(begun(doors[1], key, 40)):  # it is what runs
        eventually(lambda: ask(doors[0], key).status_code == 429)
        with closing(begun(doors[1], key, 40)) as another:
            assert another.getresponse().status == 429
    eventually(lambda: ask(doors[0], key).status_code == 200)


def begun(address: str, key: str, size: int) -> HTTPConnection:
    """A request for text whose body does not come."""
    connection = HTTPConnection(urlsplit(address).netloc, timeout=PATIENCE)
    connection.putrequest("POST", ROUTE)
    for name, value in (
        ("authorization", f"Bearer {key}"), ("content-type", "application/json"), ("content-length", str(size)),
    ):  # fmt: skip
        connection.putheader(name, value)
    connection.endheaders()
    return connection


def test_a_client_that_leaves_gives_its_place_back(
    doors: tuple[str, str], backend: AnsweringBackend, engine: Engine
) -> None:
    key = made(engine, limits=KeyLimits(concurrent_requests=1))
    backend.hang = True
    headers = {"authorization": f"Bearer {key}"}
    body = {**HELLO, "stream": True}
    with httpx.stream("POST", doors[0] + ROUTE, json=body, headers=headers, timeout=PATIENCE) as stream:
        lines = stream.iter_lines()  # kept: its end would be that of the stream
        assert next(lines).startswith("data: ")
        assert ask(doors[1], key).status_code == 429
    backend.hang = False
    eventually(lambda: ask(doors[1], key).status_code == 200)


def test_of_many_requests_at_once_no_more_run_than_may(
    doors: tuple[str, str], backend: AnsweringBackend, engine: Engine
) -> None:
    key = made(engine, limits=KeyLimits(concurrent_requests=3))
    backend.hang = True
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(ask, doors[number % 2], key) for number in range(12)]
        eventually(lambda: sum(each.done() for each in asked) == 9)
        eventually(lambda: len(backend.open) == 3)  # they may still be on their way to it
        backend.finish_all("x")
    assert sorted(each.result().status_code for each in asked) == [200] * 3 + [429] * 9


class TestLimiter:
    @pytest.mark.parametrize("seed", range(5))
    def test_redis_and_a_single_process_decide_alike(self, settings: Settings, seed: int) -> None:
        async def decided(limiter: Limiter) -> list[str]:
            drawn, found, held = random.Random(seed), [], []
            for number in range(60):
                limits = KeyLimits(*(drawn.choice((None, most)) for most in (12, 300, 3, 9.0)))
                if held and drawn.random() < 0.5:
                    lease, more = held.pop(0), drawn.randrange(-20, 40)
                    await limiter.settle("key", limits, lease, more, drawn.random())
                else:
                    room = await limiter.admit("key", limits, f"{number}", drawn.randrange(30), drawn.random())
                    found.append(room.denied)
                    if not room.denied and limits.concurrent_requests is not None:
                        held.append(f"{number}")
            await limiter.close()
            return found

        async def both() -> None:
            alone = await decided(Limiter(settings.model_copy(update={"redis_url": None})))
            assert await decided(Limiter(settings)) == alone
            assert {"requests", "tokens", "concurrent"} & set(alone)

        asyncio.run(both())

    def test_the_leases_of_a_killed_door_end(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "LEASE_SECONDS", 2.0)  # of a door that waits for a core, too
        monkeypatch.setattr(module, "RENEW_SECONDS", 0.1)
        one = KeyLimits(concurrent_requests=1)

        async def body() -> None:
            killed, renewing, other = Limiter(settings), Limiter(settings), Limiter(settings)
            assert not (await killed.admit("a", one, "1", 0, 0)).denied
            await renewing.start()
            assert not (await renewing.admit("b", one, "2", 0, 0)).denied
            assert (await other.admit("a", one, "3", 0, 0)).denied == "concurrent"
            async with asyncio.timeout(PATIENCE):
                while (await other.admit("a", one, "3", 0, 0)).denied:  # noqa: ASYNC110 - it ends at Redis
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.5)  # it was granted after the one that has ended, and would have ended, too
            assert (await other.admit("b", one, "4", 0, 0)).denied == "concurrent"
            await renewing.settle("b", one, "2", 0, 0)
            assert not (await other.admit("b", one, "4", 0, 0)).denied
            for limiter in (killed, renewing, other):
                await limiter.close()

        asyncio.run(body())

    def test_limits_are_kept_while_redis_is_away(
        self, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "AWAY_SECONDS", 0.2)
        monkeypatch.setattr(module, "ANSWER_SECONDS", 3.0)  # on however busy a machine
        parts = urlsplit(settings.require_redis_url())
        few = KeyLimits(requests_per_minute=2)

        async def body(port: int, stopped: object) -> None:
            url = parts._replace(netloc=parts.netloc.replace(str(parts.port), str(port))).geturl()
            limiter = Limiter(Settings.load(home=tmp_path, redis_url=url))

            async def room() -> Room:
                return await limiter.admit("key", few, "", 0, 0)

            assert [(await room()).denied for _ in range(2)] == ["", ""]
            with stopped:  # type: ignore[attr-defined]
                assert [(await room()).denied for _ in range(3)] == ["", "", "requests"]  # its own buckets
            async with asyncio.timeout(PATIENCE):
                while REGISTRY.get_sample_value("thothy_http_own_limits"):
                    await asyncio.sleep(0.05)
                    await room()
            assert (await room()).denied == "requests"
            await limiter.close()

        with forwarder(tmp_path, parts.port or 0) as between:
            asyncio.run(body(between.port, between.stopped()))


def test_times_are_spelled_as_openai_does() -> None:
    assert [spelled(each) for each in (-1, 0.0174, 1, 1.25, 20, 360, 3725)] == [
        "0ms", "18ms", "1s", "1.25s", "20s", "6m0s", "62m5s",
    ]  # fmt: skip
