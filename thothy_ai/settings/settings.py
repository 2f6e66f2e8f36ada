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
    KVBudgets,
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
        description="Postgres, as postgresql+psycopg://user:password@host:port/database; for TLS, append"
        " ?sslmode=verify-full&sslrootcert=/path/ca.pem. If several hosts are given, separated by commas, the one that"
        " accepts writes is used. Defaults to a running embedded stack with the same home.",
    )
    database_schema: DatabaseSchema = Field(
        default="thothy",
        description="Schema that holds all tables of an installation, including the version table. Installations that"
        " share a database need different schemas.",
    )
    database_pooler: Literal["none", "session", "transaction"] = Field(
        default="none",
        description="Mode of the connection pooler, such as pgbouncer, that the database URL points to. Use"
        " `transaction` only for processes that enqueue and read jobs: all others need sessions of their own.",
    )
    database_password: SecretStr | None = Field(
        default=None, description="Postgres password, if THOTHY_DATABASE_URL has none. Any characters are allowed."
    )
    redis_url: RedisUrl | None = Field(
        default=None,
        description="Redis or Valkey, not in cluster mode, as redis://:password@host:port/0; for TLS,"
        " rediss://:password@host:port/0?ssl_ca_certs=/path/ca.pem. Defaults to that of a running embedded stack.",
    )
    redis_password: SecretStr | None = Field(
        default=None, description="Redis password, if THOTHY_REDIS_URL has none. Any characters are allowed."
    )
    engine_url: EngineUrl | None = Field(
        default=None,
        description="Where the engine listens: unix:///path/engine.sock, or tcp://127.0.0.1:port, which also needs an"
        " engine token. Any OpenAI-compatible server works too, as https://host/v1. Defaults to the engine of a"
        " running embedded stack.",
    )
    engine_token: SecretStr | None = Field(
        default=None,
        description="Secret that clients must send to an engine on a TCP port; for an OpenAI-compatible server, its"
        " API key.",
    )
    engine_tokens: EngineTokens | None = Field(
        default=None,
        description="Tokens of the engines that `thothy serve` reaches over TCP, by engine name:"
        " one=SECRET,two=SECRET. An engine that is not listed uses the token above.",
    )
    engine_model: str | None = Field(
        default=None,
        description="Model to request from an OpenAI-compatible server. Default: the only model that it lists.",
    )
    engine_gpus: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="Number of GPUs behind an OpenAI-compatible server. Its GPU-seconds cannot be measured: they are"
        " the seconds during which this worker has requests there, times this number.",
    )
    engine_context: int = Field(
        default=8192,
        ge=256,
        description="Context length in tokens of the model on an OpenAI-compatible server that does not report"
        " max_model_len.",
    )
    engine_silence_seconds: Seconds = Field(
        default=600,
        description="Seconds without any data after which a request to an OpenAI-compatible server is abandoned and"
        " retried.",
    )
    model: Path | None = Field(
        default=None,
        description="Model that the engine loads: a Hugging Face folder or a GGUF file. Without one, `thothy up` runs"
        " the bundled model.",
    )
    engine_name: Name | None = Field(
        default=None,
        description="Name of the engine. It must survive restarts and be unique among the engines of a queue. Default:"
        " the host's name and the GPU's index, or 0.",
    )
    model_name: Name | None = Field(
        default=None,
        description="Name by which jobs request the engine's model. Default: the name of the model's folder, or of its"
        " file without the suffix.",
    )
    tenant: Tenant = Field(
        default="default",
        description="Tenant of the jobs that this process enqueues. Tenants share neither idempotency keys nor cached"
        " prefixes.",
    )
    kinds: Kinds = Field(
        default=(),
        description="Your own job kinds, separated by commas: paths of Python files, names of files in the current"
        " folder without `.py`, or names of installed modules.",
    )
    policies: Policies = Field(
        default={},
        description="Who decides about artifacts, where that differs from the kind's own policy: KIND=POLICY,"
        " separated by commas, or *=POLICY for all other kinds. `review`: a person decides about artifacts with"
        " findings, and about the best draft of a job whose drafts were all rejected. `publish`: the gates alone"
        " decide. `strict`: every finding rejects.",
    )
    kv_budgets: KVBudgets = Field(
        default={},
        description="How many tokens of a call the engine keeps in its KV cache, where that differs from the kind's own"
        " budget: KIND=TOKENS, separated by commas, or *=TOKENS for all other kinds; 0 keeps all, as does an engine"
        " that cannot serve the budget. For very long sources only: facts get lost.",
    )

    queue_prefix: str = Field(
        default="thothy:", description="Prefix of all keys in Redis. Two queues in one Redis need different ones."
    )

    worker_in_flight: int = Field(
        default=64,
        ge=1,
        description="Maximum number of jobs that a worker runs at once; as many urgent jobs may run in addition. 1024"
        " suits a GPU, which runs that many sequences at once.",
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
        description="Seconds that a worker has after SIGTERM to finish its running jobs. It releases the rest.",
    )

    judges: int | None = Field(
        default=None,
        ge=1,
        description="Number of processes in which a worker runs the code of job kinds: prompts and validators."
        " Default: three for every four processors, which the workers of `thothy up` share, but at least two and at"
        " most twelve. More than two start with the worker, and take about 170 MB each.",
    )
    judge_seconds: Seconds = Field(
        default=20,
        description="Seconds of processor time that the code of a kind may use per output. A validator that needs more"
        " is stopped, and the output is rejected as `validator_error`; for a person's edit, this is only a finding.",
    )

    gates_as_findings: Reasons = Field(
        default=(),
        description="Rejection reasons, separated by commas, that leave an output to a person instead of rejecting it."
        " Meant for gates that are too often wrong on your own work, as shown by `thothy eval validators --decisions`.",
    )
    duplicate_days: int = Field(
        default=7,
        ge=0,
        description="Number of past days whose artifacts a new one is compared with, within its kind, language and"
        " tenant. A near-duplicate is rejected as `near_duplicate` unless its kind allows it; 0 disables the"
        " comparison.",
    )

    max_attempts: int = Field(
        default=3,
        ge=1,
        le=32767,
        description="Number of failed attempts after which a job is dead, unless the job sets its own limit.",
    )
    retry_base_seconds: PositiveOrZero = Field(
        default=2,
        description="Longest delay in seconds before the first retry of a failed attempt; it doubles with each further"
        " retry. The actual delay is random.",
    )
    retry_cap_seconds: PositiveOrZero = Field(
        default=300, description="Longest delay in seconds before any retry of a failed attempt."
    )

    dispatch_interval_seconds: Seconds = Field(
        default=0.25, description="Seconds between dispatches of due jobs to Redis while Redis holds enough of them."
    )
    dispatch_min_depth: int = Field(
        default=64,
        ge=1,
        description="Minimum number of waiting jobs that the dispatcher keeps in Redis for each engine; twice the"
        " number of jobs that the engine runs, if that is more.",
    )
    dispatch_timeout_seconds: Seconds = Field(
        default=15,
        description="Seconds after which a dispatched job that no worker has claimed is dispatched again, provided"
        " that Redis is nearly empty.",
    )
    reap_interval_seconds: Seconds = Field(
        default=2,
        description="Seconds between two rounds of the reaper, which takes back jobs whose lease has expired.",
    )

    publish_by: PublishBy | None = Field(
        default=None,
        description="Time of day, with its time zone, by which the queue should be empty: `17:00 Europe/Berlin`;"
        " without a zone, UTC. Forecasts say how many jobs will still be open then.",
    )
    webhook_secrets: WebhookSecrets | None = Field(
        default=None,
        description="Secret of at least 24 characters that signs webhooks; while you rotate it, the new and the old"
        " one, separated by a comma. `thothy webhooks secret` shows what receivers need. Without a secret, webhooks"
        " wait.",
    )
    webhook_networks: Networks = Field(
        default=(),
        description="Private networks to which webhooks may be sent, separated by commas: 10.1.0.0/16, ::1/128.",
    )
    keep_history_days: int = Field(
        default=400,
        ge=0,
        description="Days after which the reaper deletes a month's jobs, artifacts and attempts, counted from the end"
        " of the month and of its last job; 0 keeps them. Hourly usage and engine sessions are kept.",
    )

    price_per_compute_hour: PositiveOrZero | None = Field(
        default=None,
        description="Price of an hour on the engine's device, in the currency below. With a price, reports also show"
        " costs in money.",
    )
    currency: str = Field(
        default="USD",
        min_length=1,
        max_length=8,
        description="Currency of the price, as displayed: USD, EUR, CHF.",
    )
    model_prices: ModelPrices = Field(
        default=(),
        description="Prices per device hour, by resident model, for models with a different price:"
        " llama-70b=8.40,qwen-7b=2.10.",
    )
    drain_gap_seconds: Seconds = Field(
        default=30,
        description="Seconds that the queue must be empty for a drain to end; shorter gaps are part of the drain.",
    )

    http_host: str = Field(
        default="127.0.0.1",
        description="Address on which `thothy serve` listens. An address that other machines can reach requires keys"
        " (`thothy keys create`) or `--no-keys`.",
    )
    http_port: int = Field(
        default=8000,
        ge=0,
        le=65535,
        description="TCP port of `thothy serve`. If it is not set, `thothy up` chooses one from 8000 on; with 0, it"
        " serves no HTTP.",
    )
    http_keys: Literal["auto", "off"] = Field(
        default="auto",
        description="Whether HTTP requests need a key. `auto`: as soon as a key exists; `off`: never, whatever the"
        " address.",
    )
    http_hosts: Hosts = Field(
        default=(),
        description="Host names, separated by commas, that programs without a key may use to reach `thothy serve`, in"
        " addition to localhost and IP addresses. If none is set, an address that other machines can reach allows all"
        " names.",
    )
    http_tls_certificate: Path | None = Field(
        default=None, description="TLS certificate of `thothy serve` (PEM, with its chain). With one, it serves HTTPS."
    )
    http_tls_key: Path | None = Field(default=None, description="Private key of the TLS certificate (PEM).")
    http_proxies: Networks = Field(
        default=(),
        description="Networks of trusted proxies, separated by commas, whose X-Forwarded-For and X-Forwarded-Proto"
        " headers `thothy serve` accepts: 10.1.0.0/16, ::1/128.",
    )
    interactive_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="Share of each engine's sequences that HTTP requests may take. Further requests wait, so that the"
        " queue keeps moving.",
    )

    files_folder: Path | None = Field(
        default=None,
        description="Folder for Batch API files that are too large for Postgres. `thothy serve` and the reaper need"
        " the same folder. Default: `files` in THOTHY_HOME.",
    )
    files_in_database: int = Field(
        default=8 * 2**20,
        ge=0,
        description="Size in bytes up to which Batch API files are stored in Postgres.",
    )

    metrics_host: str = Field(default="127.0.0.1", description="Address on which processes serve their metrics.")
    metrics_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="TCP port on which a process serves Prometheus metrics; 0 disables them. In the embedded stack,"
        " this is the engine's port, and reaper, dispatcher, worker and `thothy serve` use the next four. If it is not"
        " set, `thothy up` chooses one from 9400 on.",
    )
    prometheus_url: HttpUrl | None = Field(
        default=None,
        description="Address of Prometheus, as http://host:9090. With it, the console also shows the alerts that only"
        " Prometheus evaluates.",
    )
    alert_webhook_url: SecretStr | None = Field(
        default=None, description="URL to which Alertmanager posts alerts as JSON: https://host/path."
    )
    alert_slack_url: SecretStr | None = Field(
        default=None, description="Slack incoming webhook to which Alertmanager posts alerts."
    )
    alert_slack_channel: str | None = Field(
        default=None, description="Slack channel for alerts, such as #ops. Default: the webhook's own."
    )
    alert_email_to: str | None = Field(
        default=None, description="Email addresses, separated by commas, to which Alertmanager sends alerts."
    )
    alert_email_from: str | None = Field(default=None, description="Sender of alert emails.")
    alert_smtp_host: str | None = Field(
        default=None,
        description="Mail server for alerts, as smtp.example.com:587; if a password is set, the server must offer TLS.",
    )
    alert_smtp_user: str | None = Field(default=None, description="User name for the mail server.")
    alert_smtp_password: SecretStr | None = Field(default=None, description="Password for the mail server.")
    log_level: LogLevel = Field(
        default="INFO",
        description="Lowest level that is logged: DEBUG, INFO, WARNING, ERROR or CRITICAL. DEBUG also shows the"
        " traceback of a failed command.",
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

    def kv_budget_of(self, kind: str) -> int | None:
        """This installation's KV budget for a kind, 0 for none; None if the kind's own applies."""
        return self.kv_budgets.get(kind, self.kv_budgets.get("*"))

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
