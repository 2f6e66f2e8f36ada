"""`thothy bench serve` against our own door, and against servers that answer badly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.door import door
from tests.support.fake_server import FakeServer, Reply, chunk, message, refused, running, usage
from thothy_ai.cli import app
from thothy_ai.engine.null.backend import NullEngine

QUICK = ("--seconds", "0.3", "--requests", "10", "--prompt-tokens", "60", "--output-tokens", "20")


def serve(url: str, *options: str) -> Any:
    return CliRunner().invoke(app, ["bench", "serve", "--url", url, *QUICK, *options])


def test_rates_are_measured_and_drawn(tmp_path: Path) -> None:
    engine = NullEngine(0.1)
    picture = tmp_path / "curve.svg"
    with door(engine, tmp_path) as address:
        ran = serve(
            f"{address}/v1", "--rate", "40", "--rate", "20", "--plot", str(picture), "--json", "--patience", "60"
        )
    engine.stop()
    assert ran.exit_code == 0, ran.output
    sweep = json.loads(ran.stdout)
    assert sweep["model"] == "null"
    assert abs(sweep["prompt_tokens"] - 60) <= 3
    slow, fast = sweep["loads"]
    assert (slow["rate"], fast["rate"]) == (20, 40)
    for load in sweep["loads"]:
        assert load["requests"] >= 10
        assert load["failed"] == 0
        assert 0.1 <= load["first_token"]["p50"] <= load["first_token"]["p99"] <= load["whole"]["p99"]
        assert load["output_tokens_per_second"] > 0
    assert "goodput" in picture.read_text()


def answer(path: str, body: Mapping[str, Any]) -> Reply:
    """It does not let the length of an answer be forced, and breaks off some streams."""
    if "ignore_eos" in body:
        return refused("ignore_eos: extra inputs are not permitted")
    if not body["stream"]:
        return message("x")
    breaks = body["messages"][0]["content"] < "d"
    return iter([chunk("a"), chunk("b"), None if breaks else usage(5, 2)])


def test_streams_that_break_off_have_failed() -> None:
    with running(FakeServer(answer)) as fake:
        ran = serve(fake.url, "--rate", "50", "--json")
        assert ran.exit_code == 0, ran.output
        [load] = json.loads(ran.stdout)["loads"]
        assert 0 < load["failed"] < load["requests"] / 2
        assert "ended early" in load["first_error"]
        fake.answer = lambda path, body: refused("no", 500) if body["stream"] else message("x")
        ran = serve(fake.url, "--rate", "50")
        assert ran.exit_code == 1
        assert "most requests failed: the server answered 500: no" in ran.output


@pytest.mark.parametrize(
    ("options", "says"), [(("--plot", "curve.txt"), "expected a file that ends in"), (("--rate", "0"), "0.001")]
)
def test_wrong_options(options: tuple[str, ...], says: str) -> None:
    ran = serve("http://127.0.0.1:1/v1", *options)
    assert ran.exit_code == 2
    assert says in ran.stderr
