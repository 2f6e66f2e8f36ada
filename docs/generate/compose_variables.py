"""The variables of the Compose files, and what those mean that are no settings of the service."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = ("compose.yaml", "deploy/compose.gpu.yaml")
_VARIABLE = re.compile(r"\$\{(?P<name>[A-Z_]+)(?::(?P<kind>[-?+])(?P<text>[^}]*))?\}")
_BY_COMPOSE = {"COMPOSE_PROJECT_NAME"}  # which sets it
MEANINGS = {
    "ALERTMANAGER_MEMORY": "Memory limit of Alertmanager.",
    "ALERTMANAGER_PORT": "Port of Alertmanager on this machine's loopback address.",
    "ALERTMANAGER_URL": "Address at which operators reach Alertmanager: messages link to it.",
    "ENGINE_CPUS": "Most processors that an engine uses; 0 for all.",
    "ENGINE_MEMORY": "Memory limit of an engine's container, such as 32g; 0 for none. Of the host, not of the GPU: it"
    " holds weights while they load, and with a CPU engine the KV cache.",
    "ENGINE_STOP_GRACE": "Time for an engine to stop before it is killed: 20 s more than"
    " THOTHY_ENGINE_SHUTDOWN_SECONDS, or longer.",
    "LOG_FILES": "Number of log files that Docker keeps per container.",
    "LOG_SIZE": "Size at which Docker begins a container's next log file.",
    "POSTGRES_CACHE_SIZE": "What Postgres' planner assumes to be cached: three quarters of POSTGRES_MEMORY at most.",
    "POSTGRES_MAX_CONNECTIONS": "Most connections to Postgres. Each process of the service may have up to 15, and so"
    " may a producer.",
    "POSTGRES_MEMORY": "Memory limit of Postgres.",
    "HTTP_PORT": "Port of OpenAI's API on this machine's loopback address.",
    "POSTGRES_PORT": "Port of Postgres on this machine's loopback address, for producers.",
    "POSTGRES_SHARED_BUFFERS": "Postgres' own cache: a quarter of POSTGRES_MEMORY or less.",
    "PROMETHEUS_MEMORY": "Memory limit of Prometheus.",
    "PROMETHEUS_URL": "Address at which operators reach Prometheus: messages link to it, and to its runbooks.",
    "PROMETHEUS_PORT": "Port of Prometheus on this machine's loopback address.",
    "PROMETHEUS_RETENTION": "How long Prometheus keeps samples.",
    "REDIS_MAXMEMORY": "Most memory for data in Redis, which refuses writes beyond it. Half of REDIS_MEMORY or less.",
    "REDIS_MEMORY": "Memory limit of Redis.",
    "SERVICE_MEMORY": "Memory limit of dispatcher, reaper and migration, each.",
    "THOTHY_ALERT_SECRETS": "The folder with files of the secrets of alerts on this machine, which"
    " alertmanager-config sees as /run/alert-secrets.",
    "THOTHY_ALERT_SLACK_URL": "As the setting; a secret, which `docker inspect` shows. Better: the file.",
    "THOTHY_ALERT_SLACK_URL_FILE": "A file that holds the Slack URL, such as /run/alert-secrets/slack_url.",
    "THOTHY_ALERT_SMTP_PASSWORD_FILE": "A file that holds the mail server's password, such as /run/alert-secrets/smtp.",
    "THOTHY_ALERT_WEBHOOK_URL": "As the setting; a secret, which `docker inspect` shows. Better: the file.",
    "THOTHY_ALERT_WEBHOOK_URL_FILE": "A file that holds the webhook's URL, such as /run/alert-secrets/webhook_url.",
    "THOTHY_DATABASE_URL": "Another Postgres, without its password, which is in the file postgres_password. Across"
    " machines with TLS: append ?sslmode=verify-full&sslrootcert=system.",
    "THOTHY_GPU": "The GPU of the engine: its index or UUID. With a profile of several GPUs, leave it unset.",
    "THOTHY_KINDS": "Job kinds of your own: their files as the worker sees them, such as /kinds/quiz.py.",
    "THOTHY_KINDS_FOLDER": "The folder with these files on this machine, which the worker sees as /kinds.",
    "THOTHY_MACHINE": "Name of this machine in the fleet; give each its own. Its engines are named after it.",
    "THOTHY_MODEL": "The model, in the folder of THOTHY_MODELS: a Hugging Face folder (real files, not the links of a"
    " download cache) or a .gguf file. Not set: the small model in the image.",
    "THOTHY_MODELS": "The folder with models on this machine, such as /srv/models. The account 10001 must be able to"
    " read it.",
    "THOTHY_REDIS_URL": "Another Redis or Valkey, without its password, which is in the file redis_password. With TLS:"
    " rediss://host:6380/0.",
    "THOTHY_SECRETS": "The folder with the files of secrets.",
    "THOTHY_TORCH_INDEX": "Package index with other builds of torch for the engine on a CPU, such as PyTorch's own for"
    " CPUs (https://download.pytorch.org/whl/cpu): an image without CUDA, gigabytes smaller.",
    "THOTHY_VERSION": "Tag of the images.",
    "WORKER_MEMORY": "Memory limit of a worker, with the processes that run validators.",
    "WORKER_STOP_GRACE": "Time for a worker to stop before it is killed. Longer than THOTHY_SHUTDOWN_DEADLINE_SECONDS.",
}


@dataclass(frozen=True, slots=True)
class ComposeVariable:
    """A variable of the Compose files. `default` is None if it has none, and "" if it is empty."""

    name: str
    default: str | None
    file: str


def compose_variables() -> list[ComposeVariable]:
    """Each once per default, sorted. An alternative text (`${NAME:+text}`) is no default."""
    rows: dict[tuple[str, str | None], ComposeVariable] = {}
    for file in FILES:
        for found in _VARIABLE.finditer((ROOT / file).read_text(encoding="utf-8")):
            default = found["text"] if found["kind"] == "-" else None
            if found["name"] not in _BY_COMPOSE and found["kind"] != "+":
                rows.setdefault((found["name"], default), ComposeVariable(found["name"], default, file))
    return sorted(rows.values(), key=lambda row: (row.name, row.file))
