"""`Settings`: the frozen configuration of one service process.

Values come from `THOTHY_*` environment variables, for secrets also from the files that `THOTHY_*_FILE` variables name,
and then from `$THOTHY_HOME/stack.env`, which a running embedded stack writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from thothy_ai.errors import ConfigError, NotConnectedError
from thothy_ai.jobs.api.kind import Policy
from thothy_ai.settings.addresses import with_password
from thothy_ai.settings.problems import first_problem
from thothy_ai.settings.secret_files import SecretFileSource, is_secret, secret_variable
from thothy_ai.settings.stack import StackSettingsSource
from thothy_ai.settings.values import (
    DatabaseSchema,
    DatabaseUrl,
    EngineTokens,
    EngineUrl,
    Hosts,
    HttpUrl,
    Kinds,
    ModelPrices,
    Name,
    Networks,
    Policies,
    PositiveOrZero,
    PublishBy,
    Reasons,
    RedisUrl,
    Seconds,
    Tenant,
    WebhookSecrets,
    split,
    text_of,
)
from thothy_ai.settings.variables import PREFIX, STACK_ENV, check_stack_env

T = TypeVar("T")
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]


class Settings(BaseSettings):
    """The configuration of one process. URLs that contain passwords are `SecretStr`; read them with `require_*`."""

    reads_stack: ClassVar[bool] = True  # whether `stack.env` in the home is read
    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    home: Path = Field(
        default=Path(".thothy"),
        description="Folder of the embedded stack: its data, its logs, and the addresses of its servers.",
    )
    database_url: DatabaseUrl | None = Field(
        default=None,
        description="Postgres, as postgresql+psycopg://user:password@host:port/database; with TLS, followed by"
        " ?sslmode=verify-full&sslrootcert=/path/ca.pem. Of several hosts, separated by commas, the one that accepts"
        " writes is used. A running embedded stack sets it for all commands with the same home.",
    )
    database_schema: DatabaseSchema = Field(
        default="thothy",
        description="Schema of all tables of an installation, including the version table. Installations that share a"
        " database need a schema each.",
    )
    database_pooler: Literal["none", "session", "transaction"] = Field(
        default="none",
        description="Mode of the pooler, such as pgbouncer, if the database URL is that of one. `transaction` is only"
        " for processes that enqueue jobs and read them: all others need sessions of their own.",
    )
    database_password: SecretStr | None = Field(
        default=None, description="Password of Postgres, for a THOTHY_DATABASE_URL without one. Any characters."
    )
    redis_url: RedisUrl | None = Field(
        default=None,
        description="Redis or Valkey, not in cluster mode, as redis://:password@host:port/0; with TLS,"
        " rediss://:password@host:port/0?ssl_ca_certs=/path/ca.pem. A running embedded stack sets it, too.",
    )
    redis_password: SecretStr | None = Field(
        default=None, description="Password of Redis, for a THOTHY_REDIS_URL without one. Any characters."
    )
    engine_url: EngineUrl | None = Field(
        default=None,
        description="Where the engine listens: unix:///path/engine.sock, or tcp://127.0.0.1:port, which also requires"
        " an engine token; or the API of any server like OpenAI's, as https://host/v1. A running embedded stack sets"
        " it, too.",
    )
    engine_token: SecretStr | None = Field(
        default=None,
        description="Secret that an engine on a TCP port requires of its clients; of a server over HTTP, the API key.",
    )
    engine_tokens: EngineTokens | None = Field(
        default=None,
        description="Secrets of several engines on TCP ports, by their names, for `thothy serve`, which reaches all of"
        " them: one=SECRET,two=SECRET. An engine that is not named has the token above.",
    )
    engine_model: str | None = Field(
        default=None, description="Model to ask for at a server over HTTP. Default: the only one that it lists."
    )
    engine_gpus: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="GPUs of a server over HTTP, which cannot be measured: its GPU-seconds are the seconds in which it"
        " has requests of this worker, times this number.",
    )
    engine_context: int = Field(
        default=8192,
        ge=256,
        description="Context of the model in tokens, for a server over HTTP that does not list it as max_model_len.",
    )
    engine_silence_seconds: Seconds = Field(
        default=600,
        description="Seconds of silence after which a request to a server over HTTP is given up, and tried again.",
    )
    model: Path | None = Field(
        default=None,
        description="Model of the engine: a Hugging Face folder or a GGUF file. `thothy up` runs the bundled model"
        " without it.",
    )
    engine_name: Name | None = Field(
        default=None,
        description="Name of the engine, the same after a restart, and unlike that of any other engine of the queue."
        " Default: the host's name and the index of the GPU, or 0.",
    )
    model_name: Name | None = Field(
        default=None,
        description="Name by which jobs ask for the engine's model. Default: that of the model's folder, or of its file"
        " without the suffix.",
    )
    tenant: Tenant = Field(
        default="default",
        description="Tenant of the jobs that this process enqueues. Tenants share neither idempotency keys nor cached"
        " prefixes.",
    )
    kinds: Kinds = Field(
        default=(),
        description="Job kinds of your own, separated by commas: paths of Python files, names of files in the current"
        " folder without `.py`, or names of installed modules.",
    )
    policies: Policies = Field(
        default={},
        description="Who has the last word on artifacts, where it is not whom the kind says: KIND=POLICY, separated by"
        " commas, or *=POLICY for all others. `review`: a person, on those with findings, and on the best draft of a"
        " job whose drafts gates rejected. `publish`: the gates; nothing waits. `strict`: each finding rejects, too.",
    )

    queue_prefix: str = Field(
        default="thothy:",
        description="Prefix of all keys in Redis. Two queues in one Redis need different ones.",
    )

    worker_in_flight: int = Field(
        default=64,
        ge=1,
        description="Maximum number of jobs that a worker has in flight, and of urgent jobs beside them. 1024 is best"
        " on a GPU, which runs that many sequences at once.",
    )
    lease_seconds: Seconds = Field(
        default=60,
        description="Seconds without a heartbeat after which a worker's jobs are taken back. At least three times the"
        " heartbeat interval.",
    )
    heartbeat_seconds: Seconds = Field(
        default=10, description="Seconds between two heartbeats of a worker, each of which extends its leases."
    )
    shutdown_deadline_seconds: Seconds = Field(
        default=60,
        description="Seconds that a worker has to finish its running jobs after SIGTERM, before it releases the rest.",
    )

    judges: int | None = Field(
        default=None,
        ge=1,
        description="Number of processes in which a worker runs the code of its kinds: prompts and validators. Default:"
        " three for every four processors, from two to twelve.",
    )
    judge_seconds: Seconds = Field(
        default=20,
        description="Seconds of processor time that the code of a kind may take for an output. A validator that takes"
        " longer is ended, and the output is rejected as `validator_error`; of a person's edit, that is a finding.",
    )

    gates_as_findings: Reasons = Field(
        default=(),
        description="Reasons, separated by commas, for which an output is not rejected, but left to a person: of gates"
        " that were wrong too often on your own work, as `thothy eval validators --decisions` says.",
    )
    duplicate_days: int = Field(
        default=7,
        ge=0,
        description="Days for which a new artifact is compared with earlier ones of its kind, language and tenant. One"
        " that is nearly the same is rejected as `near_duplicate`, unless its kind allows it; 0 compares with none.",
    )

    max_attempts: int = Field(
        default=3,
        ge=1,
        le=32767,
        description="Number of attempts that may fail before a job is dead, unless the job sets its own.",
    )
    retry_base_seconds: PositiveOrZero = Field(
        default=2,
        description="Maximum number of seconds before the first retry of a failed attempt, doubled for each further"
        " retry; the delay itself is random.",
    )
    retry_cap_seconds: PositiveOrZero = Field(
        default=300, description="Maximum number of seconds before any retry of a failed attempt."
    )

    dispatch_interval_seconds: Seconds = Field(
        default=0.25, description="Seconds between two dispatches of due jobs to Redis, while Redis has enough of them."
    )
    dispatch_min_depth: int = Field(
        default=64,
        ge=1,
        description="Minimum number of waiting jobs that the dispatcher keeps in Redis for an engine, or twice the"
        " number that it runs, if that is more.",
    )
    dispatch_timeout_seconds: Seconds = Field(
        default=15,
        description="Seconds after which a dispatched job that no worker has claimed is dispatched again, if Redis is"
        " nearly empty.",
    )
    reap_interval_seconds: Seconds = Field(
        default=2,
        description="Seconds between two rounds of the reaper, which takes back jobs whose lease has expired.",
    )

    publish_by: PublishBy | None = Field(
        default=None,
        description="Time of day by which the queue should be empty, with its time zone: `17:00 Europe/Berlin`; without"
        " a zone it is UTC. Forecasts say how many jobs will still be open then.",
    )
    webhook_secrets: WebhookSecrets | None = Field(
        default=None,
        description="Secret with which webhooks are signed, of at least 24 characters; while it is being changed, the"
        " new and the old one, separated by a comma. `thothy webhooks secret` shows what receivers need. Without it,"
        " webhooks wait.",
    )
    webhook_networks: Networks = Field(
        default=(),
        description="Networks to which webhooks may be sent although they are not public, separated by commas:"
        " 10.1.0.0/16, ::1/128.",
    )
    keep_history_days: int = Field(
        default=400,
        ge=0,
        description="Days from the end of a month, and from the end of its last job, until the reaper deletes that"
        " month's jobs, artifacts and attempts; 0 keeps them. Hourly usage and engine sessions stay.",
    )

    price_per_compute_hour: PositiveOrZero | None = Field(
        default=None,
        description="Price of one hour of the engine's device, in the currency below. With it, costs are also shown in"
        " money.",
    )
    currency: str = Field(
        default="USD", min_length=1, max_length=8, description="Currency of the price, as it is shown: USD, EUR, CHF."
    )
    model_prices: ModelPrices = Field(
        default=(),
        description="Prices of one hour of a device, by resident model, for models whose price differs:"
        " llama-70b=8.40,qwen-7b=2.10.",
    )
    drain_gap_seconds: Seconds = Field(
        default=30,
        description="Seconds for which the queue must be empty to end a drain; shorter gaps are part of it.",
    )

    http_host: str = Field(
        default="127.0.0.1",
        description="Address on which `thothy serve` listens. One that other machines may reach needs keys"
        " (`thothy keys create`), or `--no-keys`.",
    )
    http_port: int = Field(
        default=8000,
        ge=0,
        le=65535,
        description="TCP port of `thothy serve`. `thothy up` chooses one from 8000 on if it is not set, and serves no"
        " HTTP if it is 0.",
    )
    http_keys: Literal["auto", "off"] = Field(
        default="auto",
        description="Whether requests over HTTP need a key. `auto`: as soon as one was created; `off`: never, whatever"
        " the address.",
    )
    http_hosts: Hosts = Field(
        default=(),
        description="Names, separated by commas, by which programs without a key reach `thothy serve`, beside localhost"
        " and IP addresses. On an address that other machines may reach, all names are allowed if none is set.",
    )
    http_tls_certificate: Path | None = Field(
        default=None, description="Certificate (PEM, with its chain) with which `thothy serve` speaks HTTPS."
    )
    http_tls_key: Path | None = Field(default=None, description="Private key of that certificate (PEM).")
    http_proxies: Networks = Field(
        default=(),
        description="Networks of the proxies, separated by commas, whose X-Forwarded-For and X-Forwarded-Proto headers"
        " `thothy serve` believes: 10.1.0.0/16, ::1/128.",
    )
    interactive_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Part of the sequences of each engine that requests over HTTP may take. Beyond it they wait for"
        " each other, so that the queue goes on.",
    )

    files_folder: Path | None = Field(
        default=None,
        description="Folder of files of the Batch API that are too large for Postgres. `thothy serve` and the reaper"
        " need the same one. Default: `files` in THOTHY_HOME.",
    )
    files_in_database: int = Field(
        default=8 * 2**20,
        ge=0,
        description="Size in bytes up to which a file of the Batch API lies in Postgres.",
    )

    metrics_host: str = Field(default="127.0.0.1", description="Address on which a process serves its metrics.")
    metrics_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="TCP port on which a process serves its Prometheus metrics; 0 serves none. In the embedded stack:"
        " the engine's port; reaper, dispatcher, worker and `thothy serve` use the next four. `thothy up` chooses one"
        " from 9400 on if it is not set.",
    )
    prometheus_url: HttpUrl | None = Field(
        default=None,
        description="Where Prometheus answers, as http://host:9090: the console shows the alerts that only it judges.",
    )
    alert_webhook_url: SecretStr | None = Field(
        default=None, description="Where Alertmanager posts alerts, as JSON: https://host/path."
    )
    alert_slack_url: SecretStr | None = Field(
        default=None, description="Incoming webhook of Slack to which Alertmanager posts alerts."
    )
    alert_slack_channel: str | None = Field(
        default=None, description="Slack channel for alerts, such as #ops. Default: the webhook's own."
    )
    alert_email_to: str | None = Field(
        default=None, description="Addresses, separated by commas, to which Alertmanager mails alerts."
    )
    alert_email_from: str | None = Field(default=None, description="Sender of mailed alerts.")
    alert_smtp_host: str | None = Field(
        default=None, description="Mail server for alerts, as smtp.example.com:587; with a password, it must offer TLS."
    )
    alert_smtp_user: str | None = Field(default=None, description="User name for the mail server.")
    alert_smtp_password: SecretStr | None = Field(default=None, description="Password for the mail server.")
    log_level: LogLevel = Field(
        default="INFO",
        description="Least severe level that is logged: DEBUG, INFO, WARNING, ERROR or CRITICAL. DEBUG also shows the"
        " traceback of a command's error.",
    )

    @model_validator(mode="after")
    def _leases_outlive_heartbeats(self) -> Self:
        if self.lease_seconds < 3 * self.heartbeat_seconds:
            lease, heartbeat = f"{self.lease_seconds:g} s", f"{self.heartbeat_seconds:g} s"
            raise ValueError(
                f"{PREFIX}LEASE_SECONDS ({lease}) must be at least three times {PREFIX}HEARTBEAT_SECONDS ({heartbeat})"
            )
        return self

    @field_validator("log_level", mode="before")
    @classmethod
    def _any_case(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @classmethod
    def load(cls, **overrides: Any) -> Self:  # noqa: ANN401 - pydantic validates each value
        """Load the settings; `overrides` take precedence. Raises `ConfigError` with a one-line message."""
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise ConfigError(first_problem(error)) from None
        except (SettingsError, OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"settings cannot be read: {error}") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - its path depends on `home`
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - one folder for all of them
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Sources by precedence: arguments, environment, secret files, then `stack.env` in the home that these name."""
        own = (init_settings, env_settings, SecretFileSource(settings_cls))
        if not cls.reads_stack:
            return own
        field = cls.model_fields["home"]
        home = Path(init_settings().get("home") or env_settings.get_field_value(field, "home")[0] or field.default)
        if not (home / STACK_ENV).is_file():  # the usual case; reading this source takes longer than all the others
            return own
        check_stack_env(home / STACK_ENV)
        return (*own, StackSettingsSource(settings_cls, home))

    @classmethod
    def variables(cls) -> tuple[str, ...]:
        """The environment variables that settings are read from, including those that name secret files."""
        files = (secret_variable(name) for name, field in cls.model_fields.items() if is_secret(field))
        return (*(f"{PREFIX}{name.upper()}" for name in cls.model_fields), *files)

    def require_database_url(self) -> str:
        """The SQLAlchemy URL of Postgres, including the password. Raises `ConfigError` if it is not set."""
        return with_password(self._require("database_url", self.database_url), self.database_password)

    def require_redis_url(self) -> str:
        """The URL of Redis, including the password. Raises `ConfigError` if it is not set."""
        return with_password(self._require("redis_url", self.redis_url), self.redis_password)

    def require_engine_url(self) -> str:
        """The URL that the engine listens on. Raises `ConfigError` if it is not set."""
        return self._require("engine_url", self.engine_url)

    def reveal_engine_token(self) -> str | None:
        """The secret that an engine on a TCP port requires of its clients; None when not set."""
        return self.engine_token.get_secret_value() if self.engine_token else None

    def policy_of(self, kind: str) -> Policy | None:
        """This installation's policy for a kind; None if the kind's own policy applies."""
        return self.policies.get(kind, self.policies.get("*"))

    def reveal_engine_tokens(self) -> dict[str, str]:
        """The secrets of engines by name, for engines that have their own."""
        entries = split(self.engine_tokens.get_secret_value()) if self.engine_tokens else ()
        return {name: token for name, _, token in (entry.partition("=") for entry in entries)}

    def reveal_webhook_secrets(self) -> tuple[str, ...]:
        """The secrets that webhooks are signed with, the newest first; none if not set."""
        return tuple(split(self.webhook_secrets.get_secret_value())) if self.webhook_secrets else ()

    def require_model(self) -> Path:
        """The path of the model folder or file. Raises `ConfigError` if it is not set."""
        return self._require("model", self.model)

    def environment(self) -> dict[str, str]:
        """Environment variables that pass these settings to another process, including passwords."""
        explicit = {name: getattr(self, name) for name in sorted(self.model_fields_set)}
        return {f"{PREFIX}{name.upper()}": text_of(value) for name, value in explicit.items() if value is not None}

    def _require(self, name: str, value: T | None) -> T:
        if value is None:
            raise NotConnectedError(
                f"no stack runs in {self.home}, and {PREFIX}{name.upper()} is not set; `thothy up` starts a stack"
            )
        return value


class OwnSettings(Settings):
    """The settings of a process that starts a stack. It ignores the `stack.env` of a running or killed stack."""

    reads_stack: ClassVar[bool] = False
