"""Batches as a user has them: the pages' snippets word for word, and a stack that is killed in the middle of one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

import psutil
import pytest
from openai import OpenAI

from tests.support.home import Home, fresh_home, processes_of
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually

PAGE = (Path(__file__).parents[2] / "docs" / "openai.md").read_text(encoding="utf-8")
HTTP_PAGE = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000/v1"
CHAT = "/v1/chat/completions"
REQUESTS = 600


COMMANDS = re.findall(r"^(curl .*?[^\\])$", HTTP_PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def home() -> Iterator[Home]:
    with fresh_home() as home:
        del home.environment["THOTHY_HTTP_PORT"]
        home.environment |= {"THOTHY_ENGINE_NULL_LATENCY": "0.3", "THOTHY_WORKER_IN_FLIGHT": "16"}
        yield home


@contextmanager
def served(home: Home) -> Iterator[str]:
    """The address of the API of a stack without a model, all of whose processes are killed at the end."""
    stack = home.up("--null")
    try:
        assert stack.stdout is not None
        said = ""
        while "Ctrl-C" not in (line := stack.stdout.readline()):
            assert line, [log.read_text() for log in home.folder.glob("logs/*")]
            said += line
        found = re.search(r"^OpenAI's API: (http://127.0.0.1:\d+/v1)\.$", said, re.MULTILINE)
        assert found
        yield found[1]
    finally:
        kill(home, stack)


def kill(home: Home, stack: subprocess.Popen[str]) -> None:
    """End everything at once, Postgres and Valkey included."""
    for process in psutil.Process(stack.pid).children(recursive=True):
        process.send_signal(signal.SIGKILL)
    os.kill(stack.pid, signal.SIGKILL)
    stack.communicate(timeout=PATIENCE)
    eventually(lambda: not processes_of(home))


@pytest.mark.timeout(600)
def test_a_batch_outlives_the_end_of_every_process(home: Home) -> None:
    with served(home) as address, OpenAI(base_url=address, api_key="any") as client:
        eventually(lambda: client.models.list().data)
        said = StringIO()
        with redirect_stdout(said):
            for snippet in SNIPPETS:
                if "import OpenAI" in snippet or "batches.create" in snippet:
                    exec(snippet.replace(ADDRESS, address), globals())
        assert re.findall(r"^hook-\d", said.getvalue(), re.MULTILINE) == ["hook-0", "hook-1"]
        for command in COMMANDS:
            ran = command.replace("http://127.0.0.1:8000", address.removesuffix("/v1")).replace("curl ", "curl -f ")
            subprocess.run(["sh", "-c", ran], check=True, cwd=home.folder, capture_output=True)
        [model] = client.models.list()
        bodies = [{"model": model.id, "messages": [{"role": "user", "content": f"{n}"}]} for n in range(REQUESTS)]
        lines = [
            {"custom_id": f"request {number}", "method": "POST", "url": CHAT, "body": body}
            for number, body in enumerate(bodies)
        ]
        content = "\n".join(map(json.dumps, lines)).encode()
        file = client.files.create(file=("input.jsonl", content), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")

        def is_under_way() -> bool:
            counts = client.batches.retrieve(batch.id).request_counts
            return counts is not None and counts.completed > 20

        eventually(is_under_way)
        assert client.batches.retrieve(batch.id).status == "in_progress"
    with served(home) as address, OpenAI(base_url=address, api_key="any") as client:
        eventually(lambda: client.batches.retrieve(batch.id).status == "completed")
        done = client.batches.retrieve(batch.id)
        assert (done.error_file_id, done.output_file_id is None) == (None, False)
        answers = client.files.content(str(done.output_file_id)).text.splitlines()
        assert [json.loads(answer)["custom_id"] for answer in answers] == [line["custom_id"] for line in lines]
