"""`Settings`: the frozen configuration of one service process.

Values come from `THOTHY_*` environment variables, then from `$THOTHY_HOME/stack.env`, which a running embedded stack
writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import SplitResult, parse_qs, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from thothy_ai.errors import ConfigError, NotConnectedError

PREFIX = "THOTHY_"
STACK_ENV = "stack.env"


def _split(url: str) -> SplitResult:
    """Split a URL. Raises `ValueError` without the library's own message, which may quote part of a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # reading the port validates it
    except ValueError:
        raise ValueError("is not a URL (special characters in a password must be percent-encoded)") from None
    return parts


def _database_url(value: SecretStr) -> SecretStr:
    scheme, separator, rest = value.get_secret_value().partition("://")
    if not separator or scheme not in {"postgres", "postgresql", "postgresql+psycopg"}:
        raise ValueError("must look like postgresql+psycopg://user:password@host:port/database")
    url = f"postgresql+psycopg://{rest}"
    if not _split(url).path.strip("/"):
        raise ValueError("does not name a database")
    return SecretStr(url)


def _redis_url(value: SecretStr) -> SecretStr:
    if _split(value.get_secret_value()).scheme not in {"redis", "rediss"}:
        raise ValueError("must look like redis://:password@host:port/0")
    return value


def _engine_url(value: str) -> str:
    parts = _split(value)
    complete = parts.path if parts.scheme == "unix" else parts.scheme == "tcp" and parts.hostname and parts.port
    if not complete:
        raise ValueError("must look like unix:///path/engine.sock or tcp://127.0.0.1:port")
    return value


def _comma_separated(value: object) -> object:
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


T = TypeVar("T")
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseSettings):
    """The configuration of one process. URLs that contain passwords are `SecretStr`; read them with `require_*`."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    home: Path = Path(".thothy")
    database_url: Annotated[SecretStr, AfterValidator(_database_url)] | None = None
    redis_url: Annotated[SecretStr, AfterValidator(_redis_url)] | None = None
    engine_url: Annotated[str, AfterValidator(_engine_url)] | None = None
    engine_token: SecretStr | None = None
    model: Path | None = None
    tenant: str = Field(default="default", min_length=1)
    kinds: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_separated)] = ()

    queue_prefix: str = "thothy:"
    queue_name: str = Field(default="jobs", min_length=1)

    worker_in_flight: int = Field(default=64, ge=1)
    lease_seconds: Seconds = 60
    heartbeat_seconds: Seconds = 10
    shutdown_deadline_seconds: Seconds = 60

    max_attempts: int = Field(default=3, ge=1, le=32767)
    retry_base_seconds: float = Field(default=2, ge=0, allow_inf_nan=False)
    retry_cap_seconds: float = Field(default=300, ge=0, allow_inf_nan=False)

    dispatch_interval_seconds: Seconds = 0.25
    dispatch_min_depth: int = Field(default=64, ge=1)
    dispatch_timeout_seconds: Seconds = 15
    reap_interval_seconds: Seconds = 2

    price_per_compute_hour: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Price of one hour of one device; `thothy jobs show` and reports then show costs.",
    )
    currency: str = Field(default="USD", min_length=1, max_length=8, description="Currency of the price.")

    metrics_host: str = "127.0.0.1"
    metrics_port: int = Field(default=0, ge=0, le=65535)
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR|CRITICAL)$")

    @model_validator(mode="after")
    def _leases_outlive_heartbeats(self) -> Self:
        if 2 * self.heartbeat_seconds > self.lease_seconds:
            lease, heartbeat = f"{self.lease_seconds:g} s", f"{self.heartbeat_seconds:g} s"
            raise ValueError(
                f"the lease ({lease}) is shorter than two heartbeat intervals ({heartbeat} each):"
                f" set {PREFIX}LEASE_SECONDS to at least three times {PREFIX}HEARTBEAT_SECONDS"
            )
        return self

    @classmethod
    def load(cls, **overrides: Any) -> Self:  # noqa: ANN401 - pydantic validates each value
        """Load the settings; `overrides` take precedence. Raises `ConfigError` with a one-line message."""
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise ConfigError(_first_problem(error)) from None
        except (SettingsError, OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"settings cannot be read: {error}") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - its path depends on `home`
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """In order of precedence: arguments, environment, `stack.env` in the home that those two define."""
        home = Path(init_settings().get("home") or env_settings().get("home") or cls.model_fields["home"].default)
        stack = DotEnvSettingsSource(settings_cls, env_file=home / STACK_ENV)
        return init_settings, env_settings, stack, file_secret_settings

    def require_database_url(self) -> str:
        """The SQLAlchemy URL of Postgres, including the password. Raises `ConfigError` if it is not set."""
        return self._require("database_url", self.database_url).get_secret_value()

    def require_redis_url(self) -> str:
        """The URL of Redis, including the password. Raises `ConfigError` if it is not set."""
        return self._require("redis_url", self.redis_url).get_secret_value()

    def require_engine_url(self) -> str:
        """The URL that the engine listens on. Raises `ConfigError` if it is not set."""
        return self._require("engine_url", self.engine_url)

    def reveal_engine_token(self) -> str | None:
        """The secret that an engine on a TCP port requires of its clients; None when not set."""
        return self.engine_token.get_secret_value() if self.engine_token else None

    def require_model(self) -> Path:
        """The path of the model folder or file. Raises `ConfigError` if it is not set."""
        return self._require("model", self.model)

    def environment(self) -> dict[str, str]:
        """Environment variables that pass these settings to another process, including passwords."""
        explicit = {name: getattr(self, name) for name in sorted(self.model_fields_set)}
        return {f"{PREFIX}{name.upper()}": _to_text(value) for name, value in explicit.items() if value is not None}

    def _require(self, name: str, value: T | None) -> T:
        if value is None:
            raise NotConnectedError(
                f"{PREFIX}{name.upper()} is not set, and no embedded stack is running in {self.home}"
            )
        return value


def _first_problem(error: ValidationError) -> str:
    """The first problem as `THOTHY_NAME: message`, without the value, which may contain a password."""
    problem = error.errors(include_input=False, include_url=False)[0]
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:  # a conflict between settings
        return message
    return f"{PREFIX}{str(problem['loc'][0]).upper().removeprefix(PREFIX)}: {message}"


def _to_text(value: object) -> str:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


def endpoint(url: str) -> str:
    """`host:port` or the socket path of a URL, for messages: never the user or password."""
    parts = urlsplit(url)
    default = {"redis": 6379, "rediss": 6379}.get(parts.scheme, 5432)
    if parts.scheme == "unix":
        return parts.path
    query = parse_qs(parts.query)  # libpq also accepts host and port in the query: ?host=/run/postgresql
    host = parts.hostname or query.get("host", ["localhost"])[0]
    return host if host.startswith("/") else f"{host}:{parts.port or query.get('port', [default])[0]}"
