"""`thothy up` as an operator uses it: start, look, enqueue, drain, stop; nothing stays behind."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.support.home import Home, fresh_home, processes_of
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from thothy_ai.cli.commands.stack import METRICS_PORT, METRICS_RANGES, METRICS_ROOM

SOURCE = (
    "Three makers of clay crocks in Lyon say that home fermentation has become a habit. Orders doubled within a year, "
    "and most come from people under thirty. Workshops on kimchi and sauerkraut are booked out until spring. "
    "The makers now lend crocks to schools, and publish recipes that need nothing but salt, water and patience."
)


def scraped(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        return str(page.read().decode())


@pytest.fixture
def home() -> Iterator[Home]:
    with fresh_home() as home:
        yield home


@pytest.mark.timeout(1800)
def test_up_until_ctrl_c(home: Home) -> None:
    del home.environment["THOTHY_METRICS_PORT"], home.environment["THOTHY_HTTP_PORT"]
    stack = home.up()
    try:
        assert stack.stdout is not None
        said = []
        while "Ctrl-C" not in (line := stack.stdout.readline()):
            assert line, f"it ended: {said} {[log.read_text() for log in home.folder.glob('logs/*')]}"
            said.append(line)
        assert "Ready after" in "".join(said)
        found = re.search(r"^Metrics: (http://127.0.0.1:(\d+)/metrics) of the engine", "".join(said), re.MULTILINE)
        assert found
        assert int(found[2]) in range(METRICS_PORT, METRICS_PORT + METRICS_RANGES * METRICS_ROOM, METRICS_ROOM)
        for place, metric in enumerate(("thothy_engine_steps_total", "thothy_leases_lost_total", "thothy_leads")):
            assert metric in scraped(int(found[2]) + place)

        served = re.search(r"^OpenAI's API: (http://127.0.0.1:\d+/v1)\.$", "".join(said), re.MULTILINE)
        assert served
        with OpenAI(base_url=served[1], api_key="any") as client:
            eventually(lambda: client.models.list().data)  # once the door has looked for engines
            [model] = client.models.list()
            hello = {"role": "user", "content": "Say hello."}
            answer = client.chat.completions.create(model=model.id, messages=[hello], max_completion_tokens=8)
            assert answer.choices[0].message.content
            pieces = client.completions.create(model=model.id, prompt="One, two,", max_tokens=5, stream=True)
            assert "".join(piece.choices[0].text for piece in pieces)

        examined = home.run("doctor", "--json")
        assert examined.returncode == 0, examined.stdout
        enqueued = home.run("enqueue", "trend_summary", "--source", SOURCE, "--audience", "shop owners", "--json")
        job_id = json.loads(enqueued.stdout)["id"]
        drained = home.run("drain", "--timeout", "9m", "--json")
        assert drained.returncode == 0, drained.stderr
        report = json.loads(drained.stdout)
        assert report["total"]["output_tokens"] > 0
        assert report["total"]["jobs_per_compute_hour"] is not None
        assert home.run("artifacts", "show", job_id).returncode == 0
    finally:
        stack.send_signal(signal.SIGINT)
        rest, _ = stack.communicate(timeout=PATIENCE)
    assert (stack.returncode, rest.splitlines()[-1]) == (0, "Stopped.")
    assert processes_of(home) == []
    assert not (home.folder / "stack.env").exists()
    assert "`thothy up` starts a stack" in home.run("jobs", "list").stderr


@pytest.mark.timeout(600)
def test_up_without_a_model_for_tests_of_a_producer(home: Home) -> None:
    kind = ["tests.support.echo_kind"]
    home.environment |= {"THOTHY_KINDS": json.dumps(kind), "THOTHY_ENGINE_NULL_LATENCY": "0.01"}
    stack = home.up("--null")
    try:
        assert stack.stdout is not None
        while "Ctrl-C" not in (line := stack.stdout.readline()):
            assert line, [log.read_text() for log in home.folder.glob("logs/*")]
        assert home.run("doctor").returncode == 0
        job_id = json.loads(home.run("enqueue", "echo", "--text", "ok", "--json").stdout)["id"]
        assert home.run("drain", "--timeout", "5m").returncode == 0
        assert json.loads(home.run("jobs", "show", job_id, "--json").stdout)["state"] == "succeeded"
    finally:
        stack.send_signal(signal.SIGINT)
        stack.communicate(timeout=PATIENCE)
    assert stack.returncode == 0


def test_up_with_a_model_that_is_not_there(home: Home) -> None:
    done = home.run("up", "--model", "/no/such/model")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("thothy: ")
    assert "/no/such/model" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert processes_of(home) == []
