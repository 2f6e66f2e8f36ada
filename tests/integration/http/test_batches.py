"""OpenAI's Batch API over the queue, as its own client sees it."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types import Batch
from openai.types.responses import Response
from pydantic import SecretStr
from starlette.types import Scope

from tests.support.door import served_door
from tests.support.engine_rows import register
from tests.support.fake_engine import FakeClient
from tests.support.queue_bench import Queue, RunnerBench, eventually, runner_bench, running
from thothy_ai.batches import keeper, lines
from thothy_ai.batches.keeper import BatchKeeper
from thothy_ai.errors import DatabaseError, InvalidJobError, ThothyError
from thothy_ai.http.access import Caller, Everybody, header
from thothy_ai.http.openai import files
from thothy_ai.producer import Producer
from thothy_ai.settings import Settings

CHAT = "/v1/chat/completions"
ENDED = {"completed", "failed", "expired", "cancelled"}


class NamedTenants(Everybody):
    """A request says whose it is."""

    async def caller(self, scope: Scope) -> Caller:
        return replace(await super().caller(scope), tenant=header(scope, b"x-tenant") or "ours")


@pytest.fixture
def address(queue: Queue) -> Iterator[str]:
    register(queue, "first", "m")
    settings = queue.settings.model_copy(update={"files_in_database": 2_000})
    with served_door(settings, access=NamedTenants("ours")) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0, _strict_response_validation=True) as client:
        yield client


@pytest.fixture
def theirs(address: str) -> Iterator[OpenAI]:
    """A client of another tenant."""
    headers = {"x-tenant": "theirs"}
    with OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0, default_headers=headers) as client:
        yield client


@pytest.fixture
def bench(queue: Queue) -> Iterator[RunnerBench]:
    client = FakeClient()
    client.model_name = "m"  # which the tests' engines have
    with runner_bench(queue, client) as bench:
        yield bench


@pytest.fixture
def kept(queue: Queue) -> Iterator[None]:
    with running(BatchKeeper(queue.settings.model_copy(update={"files_in_database": 2_000}))):
        yield


def line(custom_id: Any, content: str = "hello", **body: Any) -> dict[str, Any]:
    asked = {"model": "m", "messages": [{"role": "user", "content": content}]} | body
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": asked}


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def jsonl(*entries: object) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def batch_of(client: OpenAI, content: bytes, **options: Any) -> Batch:
    file = client.files.create(file=("input.jsonl", content), purpose="batch")
    return client.batches.create(input_file_id=file.id, completion_window="24h", **{"endpoint": CHAT, **options})


def ended(client: OpenAI, batch: Batch, meanwhile: Callable[[], object] = lambda: None) -> Batch:
    """The batch once it has ended."""
    found = []

    def is_ended() -> bool:
        meanwhile()
        found.append(client.batches.retrieve(batch.id))
        return found[-1].status in ENDED

    eventually(is_ended)
    return found[-1]


def read(client: OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(each) for each in client.files.content(file_id).text.splitlines()]


def problems(batch: Batch) -> list[tuple[str | None, int | None, str | None]]:
    assert batch.errors is not None
    return [(each.code, each.line, each.param) for each in batch.errors.data or ()]


@pytest.mark.usefixtures("kept")
def test_a_batch_becomes_jobs_and_their_answers_a_file(client: OpenAI, queue: Queue, bench: RunnerBench) -> None:
    entries = [line(f"request: {number}", f"ok {number}") for number in range(30)]
    entries += [line("long", "long words"), line("hot", temperature=9), line("schü🙂", "ok last", priority=5)]
    batch = batch_of(client, jsonl(*entries), metadata={"for": "a test"})
    assert (batch.status, batch.endpoint, batch.metadata) == ("validating", CHAT, {"for": "a test"})
    done = ended(client, batch, bench.hand_over)
    assert (done.status, done.model) == ("completed", "m")
    assert done.request_counts is not None
    assert done.request_counts.model_dump() == {"total": 33, "completed": 31, "failed": 2}
    assert None not in (done.in_progress_at, done.finalizing_at, done.completed_at)
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.total_tokens) == (310, 155, 465)
    output = read(client, done.output_file_id)
    assert [each["custom_id"] for each in output] == [*(f"request: {number}" for number in range(30)), "schü🙂"]
    assert all(each["response"]["status_code"] == 200 and each["error"] is None for each in output)
    (made,) = queue.rows(
        "SELECT provenance FROM artifact WHERE job_id = :id", id=output[0]["id"].removeprefix("batch_req_")
    )
    assert made.provenance["steps"][0]["sampling"]["temperature"] == 1.0
    message = output[7]["response"]["body"]["choices"][0]["message"]
    assert message == {"role": "assistant", "content": '{"echo": "ok 7"}', "refusal": None}
    long, hot = read(client, done.error_file_id)
    assert (long["custom_id"], long["error"], long["response"]["status_code"]) == ("long", None, 400)
    assert long["response"]["body"]["error"]["code"] == "context_length_exceeded"
    assert hot["response"]["body"]["error"]["param"] == "temperature"
    listed = client.files.list(purpose="batch_output")
    assert {file.id for file in listed} == {done.output_file_id, done.error_file_id}


@pytest.mark.usefixtures("kept")
def test_a_batch_of_responses(client: OpenAI, bench: RunnerBench) -> None:
    schema = {"type": "object", "properties": {"echo": {"type": "string"}}, "required": ["echo"]}
    items = [{"role": "user", "content": [{"type": "input_text", "text": "ok items"}]}]
    bodies: list[dict[str, Any]] = [
        {"input": "ok text", "instructions": "Be brief."},
        {"input": items, "text": {"format": {"type": "json_schema", "name": "echo", "schema": schema}}},
        {"input": "kept", "store": True},
        {"input": "hot", "max_tokens": 5},
        {"input": "wrong", "instructions": [5]},
    ]
    entries = [
        {"custom_id": f"{at}", "method": "POST", "url": "/v1/responses", "body": {"model": "m", **body}}
        for at, body in enumerate(bodies)
    ]
    done = ended(client, batch_of(client, jsonl(*entries), endpoint="/v1/responses"), bench.hand_over)
    assert (done.status, done.endpoint, done.request_counts and done.request_counts.completed) == (
        "completed", "/v1/responses", 2
    )  # fmt: skip
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.total_tokens) == (20, 10, 30)
    answers = [Response.model_validate(each["response"]["body"]) for each in read(client, done.output_file_id)]
    assert [(each.status, each.output_text) for each in answers] == [
        ("completed", '{"echo": "Be brief."}'), ("completed", '{"echo": "ok items"}')
    ]  # fmt: skip
    refused = [each["response"]["body"]["error"]["param"] for each in read(client, done.error_file_id)]
    assert refused == ["store", "max_tokens", "instructions"]


def test_a_step_that_was_cut_off_is_repeated(
    client: OpenAI, queue: Queue, bench: RunnerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: Counter[str] = Counter()

    def cut_off(place: str) -> None:
        reached[place] += 1
        if reached[place] in {1, 3}:
            raise ThothyError(f"cut off at {place}")

    monkeypatch.setattr(keeper, "crash_point", cut_off)
    monkeypatch.setattr(keeper, "INTERVAL", 0.1)
    monkeypatch.setattr(keeper, "PORTION", 10)
    with running(BatchKeeper(queue.settings)):
        done = ended(client, batch_of(client, jsonl(*(line(f"{number}") for number in range(35)))), bench.hand_over)
    assert reached == {"batch_portion": 6, "batch_written": 2}
    assert [each["custom_id"] for each in read(client, done.output_file_id)] == [f"{number}" for number in range(35)]
    assert len(queue.rows("SELECT FROM job")) == 35


def test_a_batch_that_cannot_go_on_holds_up_no_other_one(
    client: OpenAI, queue: Queue, bench: RunnerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = batch_of(client, jsonl(line("a")))

    class Faulty(keeper.Results):
        def add(self, row: Any, custom_id: str) -> None:
            if custom_id == "a":
                raise KeyError("a fault of ours")
            super().add(row, custom_id)

    monkeypatch.setattr(keeper, "Results", Faulty)
    with running(BatchKeeper(queue.settings)):
        assert ended(client, batch_of(client, jsonl(line("b"))), bench.hand_over).status == "completed"
    assert client.batches.retrieve(first.id).status == "finalizing"


def test_a_portion_that_failed_is_read_again(
    client: OpenAI, queue: Queue, bench: RunnerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = batch_of(client, jsonl(*(line(f"{number}") for number in range(10))))
    fail_at(monkeypatch, RuntimeError("a fault of ours"), call=2)
    monkeypatch.setattr(keeper, "INTERVAL", 0.1)
    with running(BatchKeeper(queue.settings)):
        done = ended(client, batch, bench.hand_over)
    assert [each["custom_id"] for each in read(client, done.output_file_id)] == [f"{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (DatabaseError("it refuses a character", "22P05"), "it refuses a character"),
        (InvalidJobError("tools", "is not right").at(1), "line 4: tools: is not right"),
        (FileNotFoundError("it was removed"), "it was removed"),
    ],
)
def test_a_batch_that_cannot_go_on_keeps_what_has_ended(
    client: OpenAI, queue: Queue, bench: RunnerBench, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    batch = batch_of(client, jsonl(*(line(f"{number}") for number in range(5))))
    fail_at(monkeypatch, error, call=2)
    with running(BatchKeeper(queue.settings)):
        done = ended(client, batch, bench.hand_over)
        assert ended(client, batch_of(client, jsonl(line("next"))), bench.hand_over).output_file_id
    assert done.status == "completed"
    assert done.request_counts is not None
    assert done.request_counts.model_dump() == {"total": 5, "completed": 2, "failed": 3}
    assert done.errors is not None
    assert [each.message for each in done.errors.data or ()] == [f"the input cannot be enqueued: {says}"]
    assert [each["custom_id"] for each in read(client, done.output_file_id)] == ["0", "1"]
    cut = read(client, done.error_file_id)
    assert [(each["custom_id"], each["error"]["code"]) for each in cut] == [
        (number, "batch_failed") for number in ("2", "3", "4")
    ]


def fail_at(monkeypatch: pytest.MonkeyPatch, error: Exception, call: int) -> None:
    """Let a call of `enqueue_many` fail, of two lines each."""
    calls: list[object] = []
    enqueue_many = Producer.enqueue_many

    def failing(producer: Producer, *given: Any, **options: Any) -> Any:
        calls.append(given)
        if len(calls) == call:
            raise error
        return enqueue_many(producer, *given, **options)

    monkeypatch.setattr(Producer, "enqueue_many", failing)
    monkeypatch.setattr(keeper, "PORTION", 2)


def test_a_line_that_nobody_foresaw_fails_its_batch(
    client: OpenAI, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(lines, "draft", faulty)
    with running(BatchKeeper(queue.settings)):
        assert problems(ended(client, batch_of(client, jsonl(line("a"))))) == [("server_error", 1, None)]


def test_a_batch_may_expire_before_its_input_is_read(client: OpenAI, queue: Queue) -> None:
    batch = batch_of(client, jsonl(line("a")))
    queue.rows("UPDATE api_batch SET expires_at = now()")
    with running(BatchKeeper(queue.settings)):
        assert problems(ended(client, batch)) == [("batch_expired", None, None)]


@pytest.mark.usefixtures("kept")
def test_a_batch_all_of_whose_requests_failed_is_completed(client: OpenAI, bench: RunnerBench) -> None:
    done = ended(client, batch_of(client, jsonl(line("a", "bad words"))), bench.hand_over)
    assert (done.status, done.output_file_id) == ("completed", None)
    assert done.request_counts is not None
    assert done.request_counts.failed == 1
    assert read(client, done.error_file_id)[0]["response"]["body"]["error"]["code"] == "invalid_json_schema"


@pytest.mark.usefixtures("kept")
def test_a_cancelled_batch_keeps_what_has_ended(client: OpenAI, bench: RunnerBench) -> None:
    batch = batch_of(client, jsonl(line("done", "ok"), line("runs", "hang on")))

    def is_half_done() -> bool:
        bench.hand_over()
        counts = client.batches.retrieve(batch.id).request_counts
        return counts is not None and counts.completed == 1

    eventually(is_half_done)
    assert client.batches.cancel(batch.id).status == "cancelling"
    assert client.batches.cancel(batch.id).status in {"cancelling", "cancelled"}
    done = ended(client, batch)
    assert done.status == "cancelled"
    assert None not in (done.cancelling_at, done.cancelled_at)
    assert [each["custom_id"] for each in read(client, done.output_file_id)] == ["done"]
    (cut,) = read(client, done.error_file_id)
    assert (cut["custom_id"], cut["response"], cut["error"]["code"]) == ("runs", None, "batch_cancelled")
    assert client.batches.cancel(batch.id).status == "cancelled"


@pytest.mark.usefixtures("kept")
def test_an_expired_batch_keeps_what_has_ended(client: OpenAI, queue: Queue, bench: RunnerBench) -> None:
    batch = batch_of(client, jsonl(line("done", "ok"), line("late", "hang on")))

    def is_half_done() -> bool:
        bench.hand_over()
        counts = client.batches.retrieve(batch.id).request_counts
        return counts is not None and counts.completed == 1

    eventually(is_half_done)
    queue.rows("UPDATE job SET deadline = now() WHERE finished_at IS NULL")
    done = ended(client, batch)
    assert (done.status, len(read(client, done.output_file_id))) == ("expired", 1)
    assert [each["error"]["code"] for each in read(client, done.error_file_id)] == ["batch_expired"]


def test_a_line_whose_job_was_removed_is_not_said_to_name_no_model(
    client: OpenAI, queue: Queue, bench: RunnerBench
) -> None:
    content = jsonl(line("kept"), line("removed"), line("unserved", model="acme"))
    with running(BatchKeeper(queue.settings)):
        batch = batch_of(client, content)
        eventually(lambda: len(queue.rows("SELECT FROM job")) == 2)
        queue.rows("DELETE FROM job WHERE idempotency_key LIKE '%removed%'")
        done = ended(client, batch, bench.hand_over)
    counts = done.request_counts
    assert counts is not None
    assert (done.status, counts.completed, counts.failed) == ("completed", 1, 2)
    removed, unserved = read(client, done.error_file_id)
    assert (removed["custom_id"], removed["response"], removed["error"]["code"]) == ("removed", None, "job_missing")
    assert (unserved["custom_id"], unserved["response"]["status_code"]) == ("unserved", 404)


@pytest.mark.usefixtures("kept")
def test_lines_of_an_expired_batch_that_had_no_job_yet_are_no_missing_jobs(
    client: OpenAI, queue: Queue, bench: RunnerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither does it matter then which of them name what no engine serves."""
    monkeypatch.setattr("thothy_ai.batches.keeper.PORTION", 2)
    enqueue = BatchKeeper._enqueue

    def enqueue_and_expire(keeper: BatchKeeper, row: Any) -> bool:
        more = enqueue(keeper, row)
        queue.rows("UPDATE api_batch SET expires_at = now()")
        return more

    monkeypatch.setattr(BatchKeeper, "_enqueue", enqueue_and_expire)
    lines = line("done"), line("unserved", model="acme"), line("late"), line("x", model="acme")
    done = ended(client, batch_of(client, jsonl(*lines)), bench.hand_over)
    assert (done.status, len(read(client, done.output_file_id))) == ("expired", 1)
    (first, *late) = read(client, done.error_file_id)
    assert (first["custom_id"], first["response"]["status_code"]) == ("unserved", 404)
    assert [(each["custom_id"], each["error"]["code"]) for each in late] == [
        ("late", "batch_expired"), ("x", "batch_expired"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"\n\n", [("empty_file", None, None)]),
        (b"hello\n", [("invalid_json_line", 1, None)]),
        (b"\xff\n", [("invalid_json_line", 1, None)]),
        (jsonl([1]), [("invalid_json_line", 1, None)]),
        (b'{"custom_id": "a", "custom_id": "b"}\n', [("invalid_json_line", 1, None)]),
        (
            jsonl(line("a"), line("b"), line("a")) + b"\n" + jsonl(line(7), line(""), line("a\nb")),
            [
                ("duplicate_custom_id", 3, "custom_id"),
                ("invalid_value", 5, "custom_id"),
                ("invalid_value", 6, "custom_id"),
                ("invalid_value", 7, "custom_id"),
            ],
        ),
        (
            jsonl(
                line("a") | {"url": "/v1/completions"},
                line("b") | {"method": "GET"},
                line("c") | {"colour": "red"},
                line("d", stream=True),
                line("e", model="unheard-of"),
                line("f", model=None),
                line("g", priority=101),
                line("h") | {"body": []},
                line("i", messages=[]),
                {"custom_id": "j"},
                line("k", content="\ud800"),
                line("l", stop="\0"),
                line("m", **{"\0": 1}),
                line("n") | {"\0": 1},
                line("o") | {"\ud800": 1},
                line("p", tools=nested(600)),
                line("q", tools=nested(200)),
                line("r", messages=[{"role": "user", "content": nested(600)}]),
            ),
            [
                ("mismatched_url", 1, "url"),
                ("invalid_method", 2, "method"),
                ("unknown_parameter", 3, "colour"),
                ("invalid_value", 4, "body.stream"),
                ("model_not_found", 5, "body.model"),
                ("missing_required_parameter", 6, "body.model"),
                ("invalid_value", 7, "body.priority"),
                ("invalid_value", 8, "body"),
                ("invalid_value", 9, "body.messages"),
                ("missing_required_parameter", 10, "method"),
                ("invalid_value", 11, "body.messages"),
                ("invalid_value", 12, "body.stop"),
                ("invalid_value", 13, r"body.\x00"),
                ("unknown_parameter", 14, r"\x00"),
                ("unknown_parameter", 15, r"\ud800"),
                ("invalid_json_line", 16, None),
                ("invalid_json_line", 17, None),
                ("invalid_json_line", 18, None),
            ],
        ),
    ],
)
@pytest.mark.usefixtures("kept")
def test_an_invalid_line_fails_the_batch_before_anything_runs(
    client: OpenAI, queue: Queue, content: bytes, wrong: Sequence[tuple[str, int | None, str | None]]
) -> None:
    done = ended(client, batch_of(client, content))
    assert (done.status, problems(done)) == ("failed", wrong)
    assert queue.rows("SELECT FROM job") == []


@pytest.mark.usefixtures("kept")
def test_a_line_for_what_no_engine_serves_fails_alone(
    client: OpenAI, bench: RunnerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is among those of its portion, and also if it is all of one."""
    monkeypatch.setattr(keeper, "PORTION", 2)
    names = ["acme", None, "acme", "nova", None, "acme"]
    content = jsonl(*(line(str(at), **({"model": name} if name else {})) for at, name in enumerate(names)))
    done = ended(client, batch_of(client, content), bench.hand_over)
    counts = done.request_counts
    assert counts is not None
    assert (done.status, counts.total, counts.completed, counts.failed) == ("completed", 6, 2, 4)
    assert [each["custom_id"] for each in read(client, done.output_file_id)] == ["1", "4"]
    refused = [(each["custom_id"], each["response"], each["error"]) for each in read(client, done.error_file_id)]
    assert [(at, answer["status_code"], error) for at, answer, error in refused] == [(at, 404, None) for at in "0235"]
    error = refused[2][1]["body"]["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "'nova'" in error["message"]
    again = ended(client, batch_of(client, content), bench.hand_over)
    ids = [each["id"] for batch in (done, again) for each in read(client, batch.error_file_id)]
    assert len(set(ids)) == 8
    # Nobody waits for a batch of nothing else.
    failed = ended(client, batch_of(client, jsonl(line("a", model="acme"), line("b", model="nova"))))
    assert (failed.status, [number for _, number, _ in problems(failed)]) == ("failed", [1, 2])


@pytest.mark.usefixtures("kept")
def test_a_batch_has_a_limit_of_requests(client: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_LINES", 2)
    done = ended(client, batch_of(client, jsonl(*(line(str(number)) for number in range(3)))))
    assert problems(done) == [("too_many_requests", None, None)]


def test_what_cannot_be_a_batch_is_refused(client: OpenAI, theirs: OpenAI) -> None:
    file = client.files.create(file=("input.jsonl", jsonl(line("a"))), purpose="batch")
    right = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h"}
    for change, status, param in (
        ({"endpoint": "/v1/embeddings"}, 400, "endpoint"),
        ({"completion_window": "1h"}, 400, "completion_window"),
        ({"metadata": {"k": "v" * 513}}, 400, "metadata.k"),
        ({"metadata": {"k": "\0"}}, 400, "metadata.k"),
        ({"metadata": {"\0": "v"}}, 400, "metadata"),
        ({"input_file_id": "file-0"}, 404, "input_file_id"),
        ({"input_file_id": f"file-{'0' * 32}"}, 404, "input_file_id"),
        ({"extra_body": {"colour": "red"}}, 400, "colour"),
    ):
        with pytest.raises(openai.APIStatusError) as refused:
            client.batches.create(**(right | change))
        assert (refused.value.status_code, refused.value.param) == (status, param), change
    with pytest.raises(openai.NotFoundError):
        theirs.batches.create(**right)  # type: ignore[arg-type]
    client.files.delete(file.id)
    with pytest.raises(openai.NotFoundError):
        client.batches.create(**right)  # type: ignore[arg-type]


def test_a_request_that_is_sent_twice_makes_one_batch(client: OpenAI, theirs: OpenAI, queue: Queue) -> None:
    content = jsonl(line("a"))
    keyed: dict[str, Any] = {"extra_headers": {"Idempotency-Key": "k: 1"}, "metadata": {"for": "a test"}}
    first = batch_of(client, content, **keyed)
    again: dict[str, Any] = {"input_file_id": first.input_file_id, "endpoint": CHAT, "completion_window": "24h"}
    assert client.batches.create(**again, **keyed) == first
    other = client.files.create(file=("input.jsonl", content), purpose="batch").id
    for change in ({"input_file_id": other}, {"metadata": {}}, {"endpoint": "/v1/completions"}):
        with pytest.raises(openai.ConflictError) as refused:
            client.batches.create(**(again | keyed | change))
        assert (refused.value.code, refused.value.param) == ("idempotency_conflict", "idempotency_key")
    for key in ("k" * 501, "a\tb"):
        with pytest.raises(openai.BadRequestError) as invalid:
            client.batches.create(**again, extra_headers={"Idempotency-Key": key})
        assert invalid.value.param == "idempotency_key"
    assert client.batches.create(**again).id != first.id
    assert batch_of(theirs, content, **keyed).id != first.id
    assert len(queue.rows("SELECT FROM api_batch")) == 3


def test_tenants_do_not_see_each_other_s(client: OpenAI, theirs: OpenAI) -> None:
    batch = batch_of(client, jsonl(line("a")))
    for ask in (
        lambda: theirs.files.retrieve(batch.input_file_id),
        lambda: theirs.files.content(batch.input_file_id),
        lambda: theirs.files.delete(batch.input_file_id),
        lambda: theirs.batches.retrieve(batch.id),
        lambda: theirs.batches.cancel(batch.id),
    ):
        with pytest.raises(openai.NotFoundError):
            ask()
    assert theirs.files.list().data == theirs.batches.list().data == []
    assert client.batches.retrieve(batch.id).id == batch.id


def test_lists_are_read_in_pages(client: OpenAI) -> None:
    batches = [batch_of(client, jsonl(line("a"))).id for _ in range(3)]
    page = client.batches.list(limit=2)
    assert ([each.id for each in page.data], page.has_more) == (batches[:0:-1], True)
    assert [each.id for each in client.batches.list(limit=2)] == batches[::-1]
    files = [each.id for each in client.files.list(order="asc", limit=1)]
    assert len(files) == 3
    assert [each.id for each in client.files.list()] == files[::-1]
    with pytest.raises(openai.BadRequestError) as refused:
        client.batches.list(limit=0)
    assert refused.value.param == "limit"
    with pytest.raises(openai.BadRequestError) as refused:
        client.batches.list(after="batch_7")
    assert refused.value.param == "after"


@pytest.mark.parametrize("size", [10, 10_000])
def test_a_file_is_kept_as_it_is_until_it_is_deleted(client: OpenAI, queue: Queue, size: int) -> None:
    content = b"\0\xff" * (size // 2)
    file = client.files.create(
        file=("näme.jsonl", content), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert (file.bytes, file.filename, file.purpose) == (size, "näme.jsonl", "batch")
    assert file.expires_at == file.created_at + 3600
    assert client.files.retrieve(file.id) == file
    assert client.files.content(file.id).content == content
    (row,) = queue.rows("SELECT id, content FROM stored_file")
    assert (row.content is None) is (size > 2_000)
    assert client.files.delete(file.id).deleted
    for ask in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            ask(file.id)


def test_what_is_no_upload_is_refused(address: str) -> None:
    def posted(**form: Any) -> tuple[int, str | None, str | None]:
        error = httpx.post(f"{address}/v1/files", **form)
        return error.status_code, error.json()["error"]["code"], error.json()["error"]["param"]

    file = {"file": ("a.jsonl", b"x")}
    assert posted(files=file) == (400, "missing_required_parameter", "purpose")
    assert posted(files=file, data={"purpose": "fine-tune"}) == (400, "invalid_value", "purpose")
    assert posted(files=file, data={"purpose": "batch", "colour": "red"}) == (400, "unsupported_parameter", "colour")
    assert posted(files={"file": ("a", b"")}, data={"purpose": "batch"}) == (400, "empty_file", "file")
    short = {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "9"}
    assert posted(files=file, data=short) == (400, "invalid_value", "expires_after.seconds")
    for mixed in (
        {"purpose": "batch", "expires_after": "x", "expires_after[seconds]": "3600"},
        {"purpose": "batch", "expires_after[seconds]": "3600", "expires_after": "x"},
    ):
        assert posted(files=file, data=mixed) == (400, "invalid_value", "expires_after")
    assert posted(json={"purpose": "batch"}) == (400, "invalid_form", "file")
    broken = {"content-type": "multipart/form-data; boundary=x"}
    assert posted(content=b"--y\r\n\r\n", headers=broken)[:2] == (400, "invalid_form")
    assert posted(data={"purpose": "batch", "file": "text"}, files={"other": b"x"}) == (400, "invalid_form", "file")


def test_an_upload_that_is_too_large_is_refused_as_it_arrives(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.http.openai.files.MAX_FORM", 100_000)
    answer = httpx.post(f"{address}/v1/files", files={"file": ("a", b"x" * 1_000_000)}, data={"purpose": "batch"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "file_too_large")


def test_uploads_beyond_a_tenant_s_places_are_told_to_come_back(
    address: str, client: OpenAI, theirs: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PLACE_SECONDS", 2.0)  # of those that hold the places, should one be taken meanwhile
    host, port = address.removeprefix("http://").split(":")
    head = f"POST /v1/files HTTP/1.1\r\nhost: {host}\r\ncontent-type: multipart/form-data; boundary=x\r\n"
    with ExitStack() as stack:
        for _ in range(files.TENANT_UPLOADS):  # whose bodies do not come
            slow = stack.enter_context(socket.create_connection((host, int(port))))
            slow.sendall(f"{head}content-length: 100\r\n\r\n".encode())

        def is_full() -> bool:
            try:
                return client.files.create(file=("a", b"x"), purpose="batch").bytes != 1
            except openai.RateLimitError as refused:
                return refused.code == "too_many_requests" and "retry-after" in refused.response.headers

        eventually(is_full)
        assert theirs.files.create(file=("a", b"x"), purpose="batch").bytes == 1
    eventually(lambda: not is_full())


def test_files_that_no_batch_reads_are_removed(queue: Queue, client: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thothy_ai.batches.storage.ORPHANED_SECONDS", -1.0)
    gone, kept = (client.files.create(file=("a", b"x" * 5_000), purpose="batch") for _ in range(2))
    batch = batch_of(client, jsonl(line("a", "ok " * 2_000)))
    for file_id in (gone.id, batch.input_file_id):
        client.files.delete(file_id)
    folder = queue.settings.home / "files" / queue.settings.database_schema
    assert len(list(folder.iterdir())) == 3
    foreign = {"theirs.txt", "lost+found", "0" * 32, "1" * 32}
    for name in ("lost+found", "0" * 32):
        (folder / name).mkdir()
    (folder / "theirs.txt").touch()
    (folder / ("1" * 32)).symlink_to(folder / "theirs.txt")
    (folder / f"{'2' * 32}.part").touch()
    still = foreign | {file_id.removeprefix("file-") for file_id in (kept.id, batch.input_file_id)}
    with running(BatchKeeper(queue.settings)):
        eventually(lambda: {path.name for path in folder.iterdir()} == still)


def test_without_the_database_the_routes_say_so(quick: Settings) -> None:
    away = quick.model_copy(update={"database_url": SecretStr("postgresql+psycopg://u:p@127.0.0.1:1/d")})
    with served_door(away) as address:
        for path in ("v1/files", "v1/batches", "api/jobs", "api/batches", "api/artifacts"):
            answer = httpx.get(f"{address}/{path}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "database_unavailable"), path
            assert answer.headers["retry-after"]
