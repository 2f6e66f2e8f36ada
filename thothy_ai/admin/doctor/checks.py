"""All checks by name, how they are run, and the checks of this process' settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping

from thothy_ai.admin.doctor import engines, processes, stores
from thothy_ai.admin.doctor.diagnosis import Diagnosis, Level
from thothy_ai.admin.doctor.queue import queue
from thothy_ai.admin.doctor.webhooks import webhooks
from thothy_ai.engine.api.errors import EngineError
from thothy_ai.engine.api.options import engine_variables
from thothy_ai.errors import ThothyError
from thothy_ai.settings import Settings, endpoint, unknown_variables

FIXES = {
    "postgres": "start Postgres (`thothy up`, or `docker compose up -d postgres`), or correct THOTHY_DATABASE_URL",
    "schema": "run `thothy migrate`",
    "redis": "start Redis (`thothy up`, or `docker compose up -d redis`), or correct THOTHY_REDIS_URL",
    "engine": "start it (`thothy up`, or `thothy engine --model PATH`), or correct THOTHY_ENGINE_URL",
    "celery": "set THOTHY_REDIS_URL",
    "dispatcher": "see what `thothy doctor --only postgres` finds",
    "reaper": "see what `thothy doctor --only postgres` finds",
    "worker": "see what `thothy doctor --only postgres` finds",
    "engines": "see what `thothy doctor --only postgres --only schema` finds",
    "queue": "see what `thothy doctor --only postgres --only schema` finds",
    "webhooks": "see what `thothy doctor --only postgres --only schema` finds",
}
ERROR_NUMBER = re.compile(r"\[Errno -?\d+\] ")  # of the operating system; its words follow
NO_STACK = (
    "start one: `thothy up`; or change to the folder it runs in, or set THOTHY_DATABASE_URL, THOTHY_REDIS_URL and"
    " THOTHY_ENGINE_URL"
)
# What must be right before a check can find anything of its own. All of them need a stack.
NEEDS = {
    "postgres": (),
    "redis": (),
    "celery": (),
    "engine": (),
    "schema": ("postgres",),
    "dispatcher": ("postgres", "schema"),  # none of them starts with another schema
    "reaper": ("postgres", "schema"),
    "worker": ("postgres", "schema"),
    "engines": ("postgres", "schema"),
    "queue": ("postgres", "schema"),
    "webhooks": ("postgres", "schema"),
}


def reason_to_skip(name: str, settings: Settings, wrong: Collection[str]) -> str | None:
    """Why a check could only repeat a problem that was found before; None if it should be made."""
    if name in NEEDS and "settings" in wrong and not _named_services(settings):
        return "no stack runs here"
    missed = next((need for need in NEEDS.get(name, ()) if need in wrong), None)
    return f"needs {missed}" if missed else None


def run(name: str, settings: Settings) -> list[Diagnosis]:
    """The findings of one check. A typed error is the last of them; it may know how to fix its cause."""
    found: list[Diagnosis] = []
    try:
        found.extend(CHECKS[name](settings))
    except (ThothyError, EngineError) as error:
        says = ERROR_NUMBER.sub("", getattr(error, "problem", str(error)))
        found.append(Diagnosis(name, Level.WRONG, says, getattr(error, "advice", None) or FIXES.get(name)))
    return found


def settings_in_use(settings: Settings) -> Iterator[Diagnosis]:
    """The services that the settings name, and unknown variables."""
    named = _named_services(settings)
    if named:
        says = ", ".join(f"{name} at {where}" for name, where in named.items())
        yield Diagnosis("settings", Level.OK, f"{says}; the home is {settings.home}")
    else:
        says = f"no stack runs in {settings.home.absolute()}, and no setting names another"
        yield Diagnosis("settings", Level.WRONG, says, NO_STACK)
    for variable in unknown_variables((*Settings.variables(), *engine_variables()), settings.home):
        fix = f"rename it to {variable.nearest}, or unset it" if variable.nearest else "unset it"
        yield Diagnosis("settings", Level.WARNING, str(variable), fix)


def _named_services(settings: Settings) -> dict[str, str]:
    """The addresses of the services that the settings name, without passwords."""
    urls = {"postgres": settings.database_url, "redis": settings.redis_url}
    named = {name: endpoint(url.get_secret_value()) for name, url in urls.items() if url is not None}
    return {**named, "engine": settings.engine_url} if settings.engine_url else named


def model(settings: Settings) -> Iterator[Diagnosis]:
    path = settings.model
    if path is None:
        yield Diagnosis("model", Level.OK, "THOTHY_MODEL is not set here; only the engine's process needs it")
        return
    problem = None
    try:
        if path.is_dir():
            missing = [name for name in ("config.json", "*.safetensors") if not any(path.glob(name))]
            problem = f"{path} has no {missing[0]}" if missing else None
        else:
            with path.open("rb") as file:
                problem = None if file.read(4) == b"GGUF" else f"{path} is not a GGUF file"
    except OSError as error:
        problem = f"{path}: {error.strerror}"
    if problem:
        fix = "set THOTHY_MODEL to a Hugging Face folder (config.json and *.safetensors) or to a .gguf file"
        yield Diagnosis("model", Level.WRONG, problem, fix)
    else:
        yield Diagnosis("model", Level.OK, str(path))


CHECKS: Mapping[str, Callable[[Settings], Iterator[Diagnosis]]] = {
    "settings": settings_in_use,
    "postgres": stores.postgres,
    "schema": stores.schema,
    "redis": stores.redis,
    "celery": processes.celery,
    "model": model,
    "engine": processes.engine,
    "dispatcher": processes.process("dispatcher", leads=True),
    "reaper": processes.process("reaper", leads=True),
    "worker": processes.process("worker", leads=False),
    "engines": engines.engines,
    "queue": queue,
    "webhooks": webhooks,
}
