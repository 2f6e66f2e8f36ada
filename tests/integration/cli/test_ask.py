"""`thothy ask`: past the queue to a served engine, without Postgres and Redis; and once to the bundled model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.support.answering_backend import AnsweringBackend
from tests.support.command_terminal import on_terminal
from tests.support.echo_kind import KIND
from tests.support.home import THOTHY, Home, fresh_home, processes_of
from tests.support.patience import PATIENCE
from tests.support.queue_bench import eventually
from tests.support.served_engine import served
from tests.support.worker_fleet import ROOT
from thothy_ai.cli import app
from thothy_ai.engine.api import MAX_PRIORITY, Choice, FinishReason, Message, TokenLogprob
from thothy_ai.engine.api.errors import EngineError, PromptTooLongError
from thothy_ai.plans.advance import PlannedJob, PlanStep, advance
from thothy_ai.plans.requests import RequestFactory

Ask = Callable[..., Result]


@pytest.fixture
def backend() -> AnsweringBackend:
    """It echoes, in two pieces."""
    return AnsweringBackend(lambda request: ['{"echo":', json.dumps(request.messages[-1].content) + "}"])


@pytest.fixture
def env(backend: AnsweringBackend, tmp_path: Path, clean_environment: None) -> Iterator[dict[str, str]]:
    url = f"unix://{tmp_path}/e.sock"
    with served(backend, url):
        yield {"THOTHY_ENGINE_URL": url, "THOTHY_HOME": str(tmp_path), "THOTHY_KINDS": "tests.support.echo_kind"}


@pytest.fixture
def ask(env: dict[str, str]) -> Ask:
    def run(*arguments: object, exit_code: int = 0, stdin: str | None = None) -> Result:
        done = CliRunner().invoke(app, ["ask", *map(str, arguments)], env=env, input=stdin)
        assert done.exit_code == exit_code, done.output
        assert "Traceback" not in done.output
        return done

    return run


def test_an_accepted_output_is_indented_json_with_the_verdict_beside_it(ask: Ask, backend: AnsweringBackend) -> None:
    done = ask("echo", "--text", "ok then", "--seed", 7)
    assert json.loads(done.stdout) == {"echo": "ok then"}
    assert done.stdout == '{\n  "echo": "ok then"\n}\n'
    verdict, figures, cost = done.stderr.splitlines()
    assert verdict == "accepted"
    assert figures.startswith("40 prompt tokens (30 cached), 20 output tokens, ")
    assert cost == "1.50 compute-seconds, answering on cpu, seed 7"
    [sent] = backend.requests
    key, body = sent.id.partition(".")[2], {"text": "ok then", "more": 0}
    step = advance(PlannedJob(KIND.name, body), ())
    assert isinstance(step, PlanStep)
    [call] = step.calls
    as_worker = RequestFactory(key, KIND.name, 7, "default").request(call, 0)
    assert (sent.messages, sent.sampling, sent.schema) == (as_worker.messages, as_worker.sampling, as_worker.schema)
    assert (sent.profile, sent.salt, sent.stream) == ("echo/write", "default", True)


def test_the_installation_s_kv_budget_applies(ask: Ask, env: dict[str, str], backend: AnsweringBackend) -> None:
    env["THOTHY_KV_BUDGETS"] = "echo=2048"
    ask("echo", "--text", "ok")
    ask("--prompt", "Why?")
    assert [request.kv_budget for request in backend.requests] == [2048, None]


@pytest.mark.parametrize("arguments", [("echo", "--text", "ok"), ("--prompt", "Why?")])
def test_a_request_of_ask_goes_before_every_job(
    ask: Ask, backend: AnsweringBackend, arguments: tuple[str, ...]
) -> None:
    ask(*arguments)
    assert [request.priority for request in backend.requests] == [MAX_PRIORITY]


def test_a_rejected_output_exits_1_and_says_why(ask: Ask) -> None:
    done = ask("echo", "--text", "retry me", exit_code=1)
    assert json.loads(done.stdout) == {"echo": "retry me"}
    assert done.stderr.splitlines()[0] == "rejected: repetition: again"


def test_further_attempts_have_other_seeds_until_one_is_accepted(ask: Ask, backend: AnsweringBackend) -> None:
    backend.answer = lambda _: ['{"echo":"ok"}'] if len(backend.requests) == 3 else ['{"echo":"retry"}']
    done = ask("echo", "--text", "x", "--attempts", 5, "--seed", 10)
    assert [request.sampling.seed for request in backend.requests] == [10, 11, 12]
    assert len({request.id for request in backend.requests}) == 3
    assert "Attempt 3 of 5, seed 12" in done.stderr
    backend.answer = lambda _: ['{"echo":"hopeless"}']  # no other seed would help
    ask("echo", "--text", "x", "--attempts", 5, exit_code=1)
    assert len(backend.requests) == 4


def test_what_a_worker_would_do_next_is_told(ask: Ask) -> None:
    done = ask("echo", "--text", "ok", "--more", 2)
    assert done.stderr.splitlines()[0] == "accepted; a worker would queue 2 follow-up jobs"


def test_json_is_one_document(ask: Ask) -> None:
    done = ask("echo", "--text", "retry me", "--attempts", 2, "--json", exit_code=1)
    document: dict[str, Any] = json.loads(done.stdout)
    assert done.stderr == ""
    assert (document["kind"], document["model"], document["accepted"]) == ("echo", "answering", False)
    first, second = document["attempts"]
    assert (first["verdict"], first["reason"], first["detail"]) == ("rejected", "repetition", "again")
    assert first["artifact"] == {"echo": "retry me"}
    assert second["seed"] == first["seed"] + 1
    assert (first["prompt_tokens"], first["cached_tokens"], first["output_tokens"]) == (40, 30, 20)
    assert first["tokens_per_second"] == pytest.approx(20 / first["seconds"])


def test_a_plain_prompt_is_answered_as_it_is(ask: Ask, backend: AnsweringBackend, tmp_path: Path) -> None:
    backend.answer = lambda _: ["Hello, ", "you\x1b[2J"]
    done = ask("--prompt", "Say hello", "--system", "Be brief", "--max-tokens", 9, "--temperature", 0, "--seed", 3)
    assert done.stdout == "Hello, you\ufffd[2J\n"
    assert "40 prompt tokens" in done.stderr
    [sent] = backend.requests
    assert sent.messages == (Message("system", "Be brief"), Message("user", "Say hello"))
    assert (sent.sampling.max_tokens, sent.sampling.temperature, sent.sampling.seed) == (9, 0.0, 3)
    assert sent.schema is None
    (tmp_path / "p.txt").write_text("from a file")
    ask("--prompt-file", tmp_path / "p.txt")
    ask("--prompt", "-", stdin="from stdin")
    ask("--prompt-file", "-", stdin="from stdin, too")
    assert [request.messages[0].content for request in backend.requests[1:]] == [
        "from a file", "from stdin", "from stdin, too",
    ]  # fmt: skip
    backend.reason = FinishReason.LENGTH
    assert "stops at --max-tokens" in ask("--prompt", "long").stderr


def test_several_texts_and_their_log_probabilities(ask: Ask, backend: AnsweringBackend) -> None:
    backend.answer = lambda _: ["one"]
    backend.logprobs = (TokenLogprob(-0.5, (4, 7), (-0.5, -1.5)), None)
    backend.others = (Choice("two", (5,), FinishReason.LENGTH, (TokenLogprob(-1.0),), -1.0),)
    done = ask("--prompt", "Say it", "--n", 2, "--logprobs", 2)
    assert done.stdout == "one\ntwo\n"
    assert done.stderr.splitlines()[0] == "mean log-probability of a token: -0.50, -1.00"
    [sent] = backend.requests
    assert (sent.n, sent.sampling.logprobs) == (2, 2)
    document = json.loads(ask("--prompt", "Say it", "--n", 2, "--logprobs", 2, "--json").stdout)
    first, second = document["attempts"][0]["choices"]
    assert (first["text"], second["text"], second["finish_reason"]) == ("one", "two", "length")
    assert first["logprobs"] == [
        {"token": 0, "logprob": -0.5, "top_tokens": [4, 7], "top_logprobs": [-0.5, -1.5]},
        {"token": 1},
    ]


def test_template_options_reach_the_engine(ask: Ask, backend: AnsweringBackend) -> None:
    ask("--prompt", "x", "--template-option", "enable_thinking=false", "--template-option", "effort=low")
    ask("echo", "--text", "ok", "--template-option", "depth=3", "--template-option", 'style="bold"')
    plain, job = (request.template_options for request in backend.requests)
    assert plain == {"enable_thinking": False, "effort": "low"}
    assert job == {"style": "bold", "depth": 3}
    ask("echo", "--text", "ok")
    assert backend.requests[-1].template_options == {"style": "plain"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prompt", "x", "--n", "65"], "--n"),
        (["--prompt", "x", "--logprobs", "21"], "--logprobs"),
        (["--prompt", "x", "--n", "2", "--temperature", "0"], "n=2 needs a temperature"),
        (["--prompt", "x", "--template-option", "thinking"], "'thinking' is not NAME=VALUE"),
        (["--prompt", "x", "--template-option", "messages=[]"], "not for requests to set"),
        (["echo", "--text", "x", "--template-option", "depth=[1]"], "is wanted"),
        (["echo"], "text: is missing"),
        (["echo", "--text", " "], "text: is empty"),
        (["echo", "--text", "x", "--attempts", "0"], "--attempts"),
        (["echo", "--text", "x", "--seed", "-1"], "--seed"),
        (["--prompt", ""], "the prompt is empty"),
        (["--prompt", "x", "--prompt-file", "y"], "mutually exclusive"),
        (["--prompt-file", "/nowhere"], "cannot read /nowhere"),
        (["--seed", "3", "echo", "--text", "x"], "--seed cannot precede the kind"),
        (["--prompt", "x", "--model", "/nowhere"], "no model at /nowhere"),
        (["haiku"], "haiku"),
    ],
)
def test_wrong_input_is_one_line_and_exits_2(ask: Ask, arguments: list[str], words: str) -> None:
    done = ask(*arguments, exit_code=2)
    assert words.lower() in done.stderr.lower()
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_without_kind_and_prompt_the_help_is_shown(ask: Ask) -> None:
    assert "thothy ask --prompt" in ask(exit_code=2).stderr


@pytest.mark.parametrize(("error", "code"), [(PromptTooLongError("too long"), 2), (EngineError("it broke"), 1)])
def test_the_engine_s_errors_are_one_line(ask: Ask, backend: AnsweringBackend, error: EngineError, code: int) -> None:
    backend.answer = lambda _: error
    done = ask("echo", "--text", "x", exit_code=code)
    assert done.stderr == f"thothy: {error}\n"


def test_an_engine_that_is_away_is_one_line(ask: Ask, env: dict[str, str]) -> None:
    env["THOTHY_ENGINE_URL"] = "unix:///nowhere/e.sock"
    done = ask("echo", "--text", "x", exit_code=1)
    assert done.stderr.startswith("thothy: no engine answers at unix:///nowhere/e.sock: ")
    assert len(done.stderr.splitlines()) == 1


def test_ctrl_c_aborts_the_request_in_the_engine(backend: AnsweringBackend, env: dict[str, str]) -> None:
    backend.hang = True
    environment = {**os.environ, **env, "PYTHONPATH": str(ROOT)}
    with on_terminal([*THOTHY, "ask", "echo", "--text", "half way"], environment) as screen:
        screen.wait_for('"echo": "half way"')
        screen.interrupt()
        assert screen.ended() == 130
        assert screen.text.endswith("Interrupted; the request is aborted.\r\n")
    assert backend.aborted.wait(PATIENCE)


def test_a_kind_that_fails_to_judge_says_how(ask: Ask) -> None:
    done = ask("echo", "--text", "raise it", exit_code=1)
    assert done.stderr.splitlines()[0] == "rejected: validator_error: ZeroDivisionError('no source')"


SOURCE = "Home fermentation has moved from a hobby to a habit, say three makers of clay crocks in Lyon."


@contextmanager
def home_with_temporary_files() -> Iterator[tuple[Home, Path]]:
    """A home, and the folder for temporary files of its commands."""
    with fresh_home() as home:
        folder = home.folder / "tmp"
        folder.mkdir()
        home.environment["TMPDIR"] = str(folder)
        yield home, folder


def test_without_an_engine_one_is_started_with_the_bundled_model_and_stopped() -> None:
    with home_with_temporary_files() as (home, folder):
        done = home.run("ask", "hook", "--source", SOURCE, "--seed", "1", "--json", timeout=800)
        assert done.returncode in {0, 1}, done.stderr
        assert processes_of(home) == []
        assert list(folder.glob("thothy-engine-*")) == []
    assert done.stderr.startswith("No engine is running: starting one with SmolLM2-135M-Instruct.Q4_1.gguf …\n")
    document = json.loads(done.stdout)
    assert document["model"].startswith("SmolLM2")
    [attempt] = document["attempts"]
    assert attempt["verdict"] in {"accepted", "rejected"}
    assert attempt["output_tokens"] > 5
    assert attempt["compute_seconds"] > 0


def test_ctrl_c_while_an_engine_starts_leaves_nothing() -> None:
    with home_with_temporary_files() as (home, folder):
        with on_terminal([*THOTHY, "ask", "--prompt", "hi"], home.environment) as screen:
            screen.wait_for("starting one")
            screen.interrupt()
            assert screen.ended() == 130
        eventually(lambda: processes_of(home) == [])  # one that was killed may still be ending
        assert list(folder.glob("thothy-engine-*")) == []


def test_an_engine_that_cannot_start_says_why_and_keeps_its_log(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"not a model")
    with home_with_temporary_files() as (home, folder):
        done = home.run("ask", "--prompt", "hi", "--model", str(tmp_path / "broken.gguf"))
        assert done.returncode == 1
        [_, line] = done.stderr.splitlines()
        [log] = folder.glob("*/engine.log")
        assert str(log) in line
        assert processes_of(home) == []
