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
from thothy_ai.cli.inputs.engine_flags import engine_options
from thothy_ai.engine.api.options import Command, Declared, EngineOptions, all_options, engine_variables, options_of
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
    assert ENGINE.keys() - BENCH.keys() == {
        *("url", "max_context", "threads", "null", "null_latency", "cache_dir", "shutdown_seconds", "stall_seconds"),
        *("verifier", "verifier_device", "adapters", "tensor_parallel"),
    }
    assert BENCH.keys() <= ENGINE.keys()


@pytest.mark.parametrize("name", ENGINE)
def test_thothy_engine_has_the_declared_option(name: str) -> None:
    declared, parameter = ENGINE[name], typer_options()[name]
    assert {*parameter.opts, *parameter.secondary_opts} == flags(declared)
    assert parameter.default == (None if declared.is_repeated else declared.default)
    assert parameter.help.startswith(declared.option.help)
    assert parameter.metavar == (declared.option.metavar or "|".join(declared.option.choices) or None)


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


OTHER_VALUES = {
    "device": "cpu",
    "dtype": "float16",
    "weights": "fp8",
    "kv_dtype": "fp8",
    "attention": "flex",
    "drafts": True,
    "state_dtype": "bfloat16",
    "kept_states": 5,
    "adapter_slots": 4,
    "adapter_rank": 64,
    "tensor_parallel": 2,
    "verifier": Path("/verifier"),
    "verifier_device": "cpu",
    "adapters": (f"acme={Path(__file__).parent}", f"nova={Path(__file__).parent}"),
    "cache_dir": Path("/cache"),
    "memory_utilization": 0.5,
    "null_latency": 0.25,
    "shutdown_seconds": 7.5,
    "stall_seconds": 60.0,
    "check_weights": True,
    "prefix_cache": False,
    "overlap": False,
    "graphs": True,
    "null": True,
    "kv_tokens": 4096,
    "max_rows": 33,
    "token_budget": 512,
    "max_context": 2048,
    "block_size": 16,
    "threads": 3,
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, clean_environment: None, tmp_path: Path) -> list[EngineOptions]:
    """The options that `thothy engine` would run with, once it is invoked."""
    from thothy_ai.engine.process import main

    options: list[EngineOptions] = []
    monkeypatch.setattr(main, "run_engine", options.append)
    for name, value in {"HOME": tmp_path, "ENGINE_URL": "unix:///e.sock", "MODEL": "/model"}.items():
        monkeypatch.setenv(f"THOTHY_{name}", str(value))
    return options


def as_typed(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def test_every_option_has_a_variable() -> None:
    assert {declared.name for declared in ENGINE.values() if not declared.option.setting} == OTHER_VALUES.keys()
    assert set(engine_variables()) == {f"THOTHY_ENGINE_{name.upper()}" for name in OTHER_VALUES}


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_a_variable_sets_an_option_and_what_is_typed_wins(
    name: str, started: list[EngineOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    declared, value = ENGINE[name], OTHER_VALUES[name]
    assert value != declared.default
    monkeypatch.setenv(declared.variable, as_typed(value))
    typed = [declared.flag, as_typed(declared.default)] if declared.default not in {None, True, False, ()} else []
    for arguments in ([], typed):
        done = CliRunner().invoke(app, ["engine", *arguments])
        assert done.exit_code == 0, done.output
    assert [getattr(options, name) for options in started] == [value, declared.default if typed else value]


def test_an_empty_variable_is_none(started: list[EngineOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in engine_variables():
        monkeypatch.setenv(variable, "")
    assert CliRunner().invoke(app, ["engine"]).exit_code == 0
    assert started == [EngineOptions(url="unix:///e.sock", model=Path("/model"))]


@pytest.mark.parametrize(
    ("name", "value"), [("WEIGHTS", "int3"), ("MAX_ROWS", "0"), ("MAX_ROWS", "many"), ("GRAPHS", "perhaps")]
)
def test_a_wrong_value_is_reported_with_its_variable(
    name: str, value: str, started: list[EngineOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"THOTHY_ENGINE_{name}", value)
    done = CliRunner().invoke(app, ["engine"])
    assert (done.exit_code, started) == (2, [])
    assert f"THOTHY_ENGINE_{name}" in done.output


def test_the_log_level_is_the_service_s(started: list[EngineOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THOTHY_LOG_LEVEL", "warning")
    assert CliRunner().invoke(app, ["engine"]).exit_code == 0
    assert started[0].log_level == "WARNING"


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
