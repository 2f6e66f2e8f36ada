"""Engine options are declared once: each command has its options, with the declared default, help text and limits."""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from typer.main import get_command
from typer.testing import CliRunner

from thothy_ai.bench import options as bench
from thothy_ai.cli import app
from thothy_ai.cli.engine_flags import engine_options
from thothy_ai.engine.options import Command, Declared, EngineOptions, all_options, options_of
from thothy_ai.errors import ConfigError
from thothy_ai.settings import Settings

ENGINE = {declared.name: declared for declared in options_of(Command.ENGINE)}
BENCH = {declared.name: declared for declared in options_of(Command.BENCH)}
NOT_OF_THE_ENGINE = {
    *("help", "workload", "order", "jobs", "seed", "draw", "urgent"),
    *("kinds", "kind", "house_prompt", "tokenizer", "shape"),
    *("tolerance", "profile", "peer", "peer_seconds", "peer_name", "as_json"),
}


def typer_options() -> dict[str, Any]:
    command: Any = get_command(app)
    return {parameter.name: parameter for parameter in command.get_command(None, "engine").params}


def argparse_options() -> dict[str, argparse.Action]:
    return {action.dest: action for action in bench.drain_parser("bench")._actions}


def flags(declared: Declared) -> set[str]:
    return {declared.flag, declared.negation} - {None}


def test_every_field_is_declared_and_every_option_has_its_place() -> None:
    assert [declared.name for declared in all_options()] == [field.name for field in fields(EngineOptions)]
    for declared in all_options():
        option = declared.option
        assert option.help.endswith("."), declared.name
        assert isinstance(declared.default, declared.kind | None)
        assert not option.choices or declared.default in option.choices
    assert typer_options().keys() - {"help"} == ENGINE.keys()
    assert argparse_options().keys() - NOT_OF_THE_ENGINE == BENCH.keys()
    assert ENGINE.keys() - BENCH.keys() == {"url", "max_context", "threads", "null", "null_latency"}
    assert BENCH.keys() <= ENGINE.keys()


@pytest.mark.parametrize("name", ENGINE)
def test_thothy_engine_has_the_declared_option(name: str) -> None:
    declared, parameter = ENGINE[name], typer_options()[name]
    assert {*parameter.opts, *parameter.secondary_opts} == flags(declared)
    assert parameter.default == declared.default
    assert parameter.help.startswith(declared.option.help)
    assert parameter.metavar == declared.option.metavar


@pytest.mark.parametrize("name", BENCH)
def test_thothy_bench_drain_has_the_declared_option(name: str) -> None:
    declared, action = BENCH[name], argparse_options()[name]
    assert set(action.option_strings) == flags(declared)
    assert action.default == declared.default
    assert action.help is not None
    assert action.help.startswith(declared.option.help)
    assert (action.metavar, tuple(action.choices or ())) == (declared.option.metavar, declared.option.choices)


@pytest.mark.parametrize("command", [["engine"], ["bench", "drain", "work.json"]], ids=["engine", "bench"])
@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *((declared.flag, "0") for declared in BENCH.values() if declared.option.minimum),
        ("--memory-utilization", "1.01"),
        ("--weights", "int4"),
        ("--kv-dtype", "int4"),
    ],
)
def test_both_commands_enforce_limits_and_choices(
    command: list[str], flag: str, value: str, clean_environment: None
) -> None:
    done = CliRunner().invoke(app, [*command, flag, value])
    assert done.exit_code == 2, done.output
    assert flag in done.output


def test_both_help_texts_are_complete_and_import_no_torch() -> None:
    code = (
        "import sys\n"
        "from thothy_ai.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'transformers', 'sqlalchemy', 'celery', 'redis'} & sys.modules.keys()))"
    )
    for command, declared in ((["engine"], ENGINE), (["bench", "drain"], BENCH)):
        call = [sys.executable, "-c", code, *command, "--help"]
        done = subprocess.run(call, capture_output=True, text=True, check=True)
        *lines, imported = done.stdout.splitlines()
        assert imported == "[]"
        shown = " ".join(" ".join(lines).split())
        for option in declared.values():
            assert option.flag in shown
            assert option.option.help in shown


def given(**flags: object) -> dict[str, object]:
    return {name: declared.default for name, declared in ENGINE.items()} | flags


def test_flags_win_over_settings_and_settings_over_defaults(clean_environment: None, tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path,
        engine_url="unix:///run/e.sock",
        engine_token=SecretStr("sesame"),
        model=Path("/models/one"),
        metrics_port=9000,
    )
    plain = engine_options(given(), settings)
    assert (plain.url, plain.model, plain.token) == ("unix:///run/e.sock", Path("/models/one"), "sesame")
    assert (plain.metrics_host, plain.metrics_port) == ("127.0.0.1", 9000)
    assert "sesame" not in repr(plain)
    flagged = engine_options(given(url="tcp://127.0.0.1:1", model=Path("/models/two"), max_rows=3), settings)
    assert (flagged.url, flagged.model, flagged.max_rows) == ("tcp://127.0.0.1:1", Path("/models/two"), 3)
    assert engine_options(given(null=True), settings).model is None


@pytest.mark.parametrize(("flags", "variable"), [({}, "ENGINE_URL"), ({"url": "unix:///e.sock"}, "MODEL")])
def test_what_is_missing_is_named(
    flags: dict[str, object], variable: str, clean_environment: None, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=f"THOTHY_{variable} is not set"):
        engine_options(given(**flags), Settings(home=tmp_path))


def test_defaults_that_settings_have_too_are_the_same(clean_environment: None, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    for declared in all_options():
        if declared.option.setting:
            assert getattr(settings, declared.option.setting) == declared.default
