"""What Compose reads: `deploy/settings.yaml`, which passes settings on to containers, and `.env.example`.

Both are written from the declarations of settings and engine options, so that everything can be set in `.env`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from docs.generate.compose_variables import MEANINGS, compose_variables
from docs.generate.settings import shown
from thothy_ai.engine.api.options import Command, Declared, options_of
from thothy_ai.settings import PREFIX, Settings

# Set in compose.yaml itself: addresses inside the network, names, files of secrets, paths inside the containers.
FIXED = {
    *("home", "database_url", "database_password", "redis_url", "redis_password", "engine_url", "engine_token"),
    *("engine_name", "model", "kinds", "metrics_host", "metrics_port"),
    *("alert_webhook_url", "alert_slack_url", "alert_smtp_password", "webhook_secrets"),
}
_NOTE = "# Written by `make docs` from the code. Change the code, not this file.\n"
_HEAD = f"""{_NOTE}#
# Copy it to .env and set what should differ from the defaults shown. Nothing is required. Passwords are not set here:
# deploy/make-secrets writes them into files. docs/deploy.md explains the steps.
"""
_GPU = """
# For NVIDIA GPUs (driver 580 or newer, and the NVIDIA Container Toolkit): both lines; the second for four of them.
# COMPOSE_FILE=compose.yaml:deploy/compose.gpu.yaml
# COMPOSE_PROFILES=gpus-4
"""


def passed_settings() -> list[str]:
    """The settings that `.env` reaches, by name."""
    return [name for name in Settings.model_fields if name not in FIXED]


def passed_options() -> list[Declared]:
    """The engine's options that are no settings of the service."""
    return [declared for declared in options_of(Command.ENGINE) if not declared.option.setting]


def settings_yaml() -> str:
    """The base of our services: every variable, passed on if it is set."""
    common = [PREFIX + name.upper() for name in passed_settings()]
    options = [declared.variable for declared in passed_options()]
    return (
        f"{_NOTE}# A variable without a value is passed on from .env or the shell, if it is set there.\n"
        f"services:\n{_base('service', common)}{_base('engine', [*common, *options])}"
    )


def env_example() -> str:
    """Every variable, as a comment, with its default and what it means."""
    return "".join(
        (
            _HEAD,
            _GPU,
            _section("Compose", _of_compose()),
            _section("Settings of the service", _of_settings()),
            _section("Options of the engine", _of_options()),
        )
    )


def _base(name: str, variables: Iterable[str]) -> str:
    return "\n".join((f"  {name}:", "    environment:", *(f"      {variable}:" for variable in variables))) + "\n"


def _of_compose() -> Iterator[tuple[str, str, str]]:
    known = {PREFIX + name.upper() for name in passed_settings()}
    for name in dict.fromkeys(variable.name for variable in compose_variables()):
        if name not in known:
            default = next((row.default for row in compose_variables() if row.name == name and row.default), "")
            yield name, "" if default == "/dev/null" or name == "THOTHY_MODEL" else default, MEANINGS[name]


def _of_settings() -> Iterator[tuple[str, str, str]]:
    for name in passed_settings():
        field = Settings.model_fields[name]
        yield PREFIX + name.upper(), _typed(field.default), field.description or ""


def _of_options() -> Iterator[tuple[str, str, str]]:
    for declared in passed_options():
        choices = f" One of {', '.join(declared.option.choices)}." if declared.option.choices else ""
        yield declared.variable, _typed(declared.default), declared.option.help + choices


def _typed(default: object) -> str:
    return "" if default in (None, (), {}) else shown(default).strip("`")


def _section(title: str, rows: Iterable[tuple[str, str, str]]) -> str:
    return f"\n# {title}\n" + "".join(_entry(*row) for row in rows)


def _entry(name: str, default: str, meaning: str) -> str:
    words = textwrap.fill(
        " ".join(meaning.split()), 118, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )
    return f"\n{words}\n# {name}={default}\n"
