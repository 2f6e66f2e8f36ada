"""Types of settings: URLs, seconds, names, kinds. A message never shows the value, which may be a password."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BeforeValidator, Field, InstanceOf, SecretStr
from pydantic_settings import NoDecode

from thothy_ai.jobs.api.kind import MAX_KV_BUDGET, Policy
from thothy_ai.jobs.api.verdict import RejectionReason
from thothy_ai.settings.addresses import database_url_in_one_form, split_url

_TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
_TENANT = re.compile(r"[^\W_](?:[\w .@:+&'-]{0,98}[\w.@+'-])?")
MIN_SECRET_CHARS = 24


def _database_url(value: SecretStr) -> SecretStr:
    scheme, separator, rest = value.get_secret_value().partition("://")
    if not separator or scheme not in {"postgres", "postgresql", "postgresql+psycopg"}:
        raise ValueError("must look like postgresql+psycopg://user:password@host:port/database")
    url = f"postgresql+psycopg://{rest}"
    url = database_url_in_one_form(url)
    if not split_url(url).path.strip("/"):
        raise ValueError("does not name a database")
    return SecretStr(url)


def _database_schema(value: str) -> str:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,39}", value):
        raise ValueError("must be 1 to 40 lower-case letters, digits and underscores, and not begin with a digit")
    if value in {"public", "information_schema"} or value.startswith("pg_"):
        raise ValueError("must be a schema that nothing else uses, and not one of Postgres' own")
    return value


def _redis_url(value: SecretStr) -> SecretStr:
    if "," in value.get_secret_value().partition("://")[2].partition("/")[0].rpartition("@")[2]:
        raise ValueError("must name one server: neither Sentinels nor the nodes of a cluster")
    parts = split_url(value.get_secret_value())
    if parts.scheme not in {"redis", "rediss"}:
        raise ValueError("must look like redis://:password@host:port/0")
    query = parse_qs(parts.query)  # checked here because the client's own error does not name the file
    for name in _TLS_FILES:
        if not all(os.access(path, os.R_OK) for path in query.get(name, ())):
            raise ValueError(f"{name} names no file that can be read")
    return value


def _engine_url(value: str) -> str:
    parts = split_url(value)
    if parts.scheme in {"http", "https"}:
        complete = bool(parts.hostname and not (parts.query or parts.fragment or parts.username))
    elif parts.scheme == "tcp":
        complete = bool(parts.hostname and parts.port)
    else:
        complete = parts.scheme == "unix" and bool(parts.path)
    if not complete:
        raise ValueError("must look like unix:///path/engine.sock, tcp://127.0.0.1:port or https://host/v1")
    return value


def _http_url(value: str) -> str:
    parts = split_url(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ValueError("must look like http://host:port, with a path if it is behind one")
    return value


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("must consist of at most 100 letters, digits, dots, hyphens and underscores")
    return value


def check_tenant(value: str) -> str:
    """Return the tenant. Raises `ValueError` if the name could be read as a path, markup or a formula."""
    if not _TENANT.fullmatch(value):
        raise ValueError("must be 1 to 100 letters, digits, spaces and . _ - @ : + & ', with a letter or digit first")
    return value


def _kinds(value: object) -> object:
    """The entries of a list, a JSON list or a comma-separated text."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.lstrip().startswith("[") else [*map(str.strip, value.split(","))]
        except ValueError:
            raise ValueError("must be names and paths, separated by commas, or a JSON list of them") from None
    return tuple(_located(str(entry)) for entry in value if entry) if isinstance(value, list | tuple) else value


def _located(entry: str) -> str:
    """An entry that names a file, as an absolute path, since another process may run in another folder.

    A bare name stands for a file of that name in the current folder if there is one: `quiz` for `quiz.py`.
    """
    if "/" in entry or entry.endswith(".py"):
        return str(Path(entry).expanduser().absolute())
    file = Path(f"{entry}.py")
    return str(file.absolute()) if file.is_file() else entry


def _listed(read: Callable[[Sequence[Any]], object]) -> BeforeValidator:
    """Reads the entries of a list or a comma-separated text."""

    def entries(value: object) -> object:
        found = split(value) if isinstance(value, str) else value
        return read(found) if isinstance(found, list | tuple) else value

    return BeforeValidator(entries)


def _prices(entries: Sequence[Any]) -> tuple[str, ...]:
    prices = tuple(str(entry).strip() for entry in entries if str(entry).strip())
    prices_by_name(prices)
    return prices


def prices_by_name(entries: tuple[str, ...]) -> dict[str, float]:
    """The prices of entries NAME=PRICE. Raises `ValueError`."""
    prices = {}
    for entry in entries:
        name, _, price = entry.rpartition("=")
        try:
            number = float(price)
        except ValueError:
            number = -1.0
        if not name.strip() or not 0 <= number < float("inf"):
            raise ValueError("must be NAME=PRICE, separated by commas, with prices of at least 0")
        prices[name.strip()] = number
    return prices


def split(text: str) -> list[str]:
    """The entries of a comma-separated text."""
    return [entry for entry in map(str.strip, text.split(",")) if entry]


def _webhook_secrets(value: SecretStr) -> SecretStr:
    secrets = split(value.get_secret_value())
    if not 1 <= len(secrets) <= 2 or min(map(len, secrets)) < MIN_SECRET_CHARS:
        raise ValueError(f"must be one or two secrets of at least {MIN_SECRET_CHARS} characters")
    return value


def _engine_tokens(value: SecretStr) -> SecretStr:
    entries = [entry.partition("=") for entry in split(value.get_secret_value())]
    if not entries or not all(_NAME.fullmatch(name) and token for name, _, token in entries):
        raise ValueError("must be NAME=SECRET, separated by commas, with the names of engines")
    return value


def _by_kind(value: object, name: str, accepts: Callable[[str], bool], wanted: str) -> object:
    """The entries of KIND=VALUE by kind; ValueError says what a value is."""
    if not isinstance(value, str):
        return value
    entries = dict(entry.split("=", 1) for entry in split(value) if "=" in entry)
    if len(entries) < len(split(value)) or not all(entries) or not all(map(accepts, entries.values())):
        raise ValueError(f"must be KIND={name}, separated by commas, or *={name}: {wanted}")
    return entries


def _policies(value: object) -> object:
    known = [policy.value for policy in Policy]
    return _by_kind(value, "POLICY", known.__contains__, f"one of {', '.join(known)}")


def _kv_budgets(value: object) -> object:
    def accepts(text: str) -> bool:
        return (
            text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_KV_BUDGET)) and int(text) <= MAX_KV_BUDGET
        )

    return _by_kind(value, "TOKENS", accepts, "a number such as 2048, or 0")


def _reasons(entries: Sequence[Any]) -> tuple[RejectionReason, ...]:
    known = list(RejectionReason)
    if unknown := [entry for entry in entries if entry not in known]:
        raise ValueError(f"{unknown[0]!r} is not a reason for which outputs are rejected, such as {known[0]}")
    return tuple(RejectionReason(entry) for entry in entries)


def _networks(entries: Sequence[Any]) -> tuple[str, ...]:
    try:
        return tuple(str(ip_network(entry)) for entry in entries)
    except ValueError as error:
        raise ValueError(f"must be networks such as 10.1.0.0/16: {error}") from None


def _hosts(entries: Sequence[Any]) -> tuple[str, ...]:
    if not all(isinstance(entry, str) and _HOST.fullmatch(entry) for entry in entries):
        raise ValueError("must be names of hosts, separated by commas, without ports")
    return tuple(entry.lower() for entry in entries)


def text_of(value: object) -> str:
    """This setting's value as text from which it can be read back, passwords included."""
    match value:
        case SecretStr():
            return value.get_secret_value()
        case tuple():
            return json.dumps(value) if any("," in entry for entry in value) else ",".join(value)
        case dict():
            return ",".join(f"{name}={entry}" for name, entry in value.items())
        case _:
            return str(value)


@dataclass(frozen=True, slots=True)
class PublishingTime:
    """A time of day in a time zone: `17:00 Europe/Berlin`, or `17:00` in UTC."""

    at: time
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str) -> PublishingTime:
        """Read a time and its zone. Raises `ValueError`."""
        clock, _, zone = text.strip().partition(" ")
        try:
            made = cls(time.fromisoformat(clock), ZoneInfo(zone.strip() or "UTC"))
        except (ValueError, ZoneInfoNotFoundError, OSError):
            made = None
        if made is None or made.at.tzinfo is not None:
            raise ValueError("must be a time and a time zone, such as 17:00 Europe/Berlin; without one it is UTC")
        return made

    def next_after(self, moment: float) -> float:
        """The next publishing time after a moment, both in seconds since the epoch."""
        today = datetime.fromtimestamp(moment, self.zone).date()
        days = (datetime.combine(today + timedelta(days=more), self.at, self.zone) for more in range(3))
        return next(day.timestamp() for day in days if day.timestamp() > moment)

    def __str__(self) -> str:
        return f"{self.at.isoformat()} {self.zone.key}"


DatabaseUrl = Annotated[SecretStr, AfterValidator(_database_url)]
DatabaseSchema = Annotated[str, AfterValidator(_database_schema)]
RedisUrl = Annotated[SecretStr, AfterValidator(_redis_url)]
Name = Annotated[str, AfterValidator(_name)]
Tenant = Annotated[str, AfterValidator(check_tenant)]
EngineTokens = Annotated[SecretStr, AfterValidator(_engine_tokens)]
EngineUrl = Annotated[str, AfterValidator(_engine_url)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
WebhookSecrets = Annotated[SecretStr, AfterValidator(_webhook_secrets)]
Networks = Annotated[tuple[str, ...], NoDecode, _listed(_networks)]
Reasons = Annotated[tuple[RejectionReason, ...], NoDecode, _listed(_reasons)]
Hosts = Annotated[tuple[str, ...], NoDecode, _listed(_hosts)]
Kinds = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_kinds)]
Policies = Annotated[dict[str, Policy], NoDecode, BeforeValidator(_policies)]
KVBudgets = Annotated[dict[str, Annotated[int, Field(ge=0, le=MAX_KV_BUDGET)]], NoDecode, BeforeValidator(_kv_budgets)]
ModelPrices = Annotated[tuple[str, ...], NoDecode, _listed(_prices)]
PublishBy = Annotated[
    InstanceOf[PublishingTime],
    NoDecode,
    BeforeValidator(lambda value: PublishingTime.parse(value) if isinstance(value, str) else value),
]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
PositiveOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
