"""`METRICS.md`: every Prometheus metric, which process serves it at which port, and the alerts that read it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml
from prometheus_client import Metric
from prometheus_client.metrics import MetricWrapperBase

from docs.generate.markdown import code, page, table
from thothy_ai.embedded.stack import DOOR, SERVICES
from thothy_ai.engine.null.backend import NullEngine
from thothy_ai.engine.process.metrics import registry_of
from thothy_ai.http import metrics as http_metrics
from thothy_ai.plans import metrics as plans_metrics
from thothy_ai.queue import metrics as queue_metrics
from thothy_ai.queue.collector import QueueReading, families
from thothy_ai.queue.forecast.learning import History
from thothy_ai.queue.forecast.outlook import Forecast, forecast
from thothy_ai.queue.forecast.values import Key, Observation, WaitingJobs
from thothy_ai.queue.status import QueueStatus
from thothy_ai.worker import metrics as worker_metrics

ROOT = Path(__file__).parents[2]
# Which process runs the code that counts. A file that is in none of them fails the page.
PROCESSES = {
    "thothy_ai/queue/dispatcher.py": "dispatcher",
    "thothy_ai/queue/collector.py": "dispatcher",
    "thothy_ai/queue/leader.py": "dispatcher, reaper",
    "thothy_ai/queue/qos.py": "worker",
    "thothy_ai/queue/reaper.py": "reaper",
    "thothy_ai/queue/rules.py": "reaper",
    "thothy_ai/queue/webhooks": "reaper",
    "thothy_ai/http": "serve",
    "thothy_ai/plans": "worker",
    "thothy_ai/worker": "worker",
}
_SUFFIXES = {"counter": "_total", "info": "_info"}
_HEADS = ("Metric", "Type", "Labels", "Process", "What it says")


@dataclass(frozen=True, slots=True)
class Family:
    """A metric as a page shows it."""

    name: str
    kind: str
    labels: str
    processes: str
    help: str

    def row(self) -> tuple[str, ...]:
        """Its row in a table."""
        return code(self.name), self.kind, self.labels or "-", self.processes, self.help


def metrics_page() -> str:
    """The page."""
    return page(
        "Metrics",
        "The metrics that each process serves for Prometheus, at `/metrics` of its `THOTHY_METRICS_PORT`; without"
        " that setting it serves none.",
        "## Ports",
        "In the Compose file, each process serves at the port below inside the Compose network; Prometheus, at port"
        f" {_prometheus_port()}, scrapes all of them.\nWith `thothy up`, each process has a port of its own on"
        " `THOTHY_METRICS_HOST`, counted from `THOTHY_METRICS_PORT`;\nif that is not set, from 9400 or the next twenty"
        " ports that are free, and `thothy up` says which. 0 serves none.",
        table(("Process", "Compose file", "`thothy up`"), _ports()),
        "Every process except the engine also serves the standard metrics of the Python client: `process_*`,"
        " `python_gc_*`, `python_info`.",
        "## Jobs and attempts",
        table(_HEADS, (family.row() for family in counted())),
        "## The queue",
        "Read from Postgres by a thread of the dispatcher, every 5 s, or less often if a reading takes more than"
        " 0.15 s: a scrape waits for no query.\nEvery dispatcher serves them, a standby too.",
        table(_HEADS, (family.row() for family in of_queue())),
        "The rule `thothy:approved_per_gpu_hour:7d` divides the jobs whose artifact is approved by the hours of"
        " residency, as [the drain report](report.md) does:\nit has no value until somebody decides."
        " `thothy_wasted_seconds_total` counts an attempt when it ends. Of a job whose best draft is not the last one,"
        "\nit counts the other; the report and the bill know.",
        "## The engine",
        table(_HEADS, (family.row() for family in of_engine())),
        "## OpenAI's API",
        table(_HEADS, (family.row() for family in of_door())),
        "## Alerts",
        "The rules in `deploy/prometheus/alerts.yml`. Each alert links to its runbook: what it means, what to look at,"
        " what to do, and when it can wait.",
        table(("Alert", "Severity", "After", "What it says"), _alerts()),
    )


def counted() -> Iterator[Family]:
    """What the processes count themselves."""
    return _of_modules((queue_metrics, worker_metrics, plans_metrics), ("plans", "queue", "worker"))


def of_door() -> Iterator[Family]:
    """What `thothy serve` counts."""
    return _of_modules((http_metrics,), ("http",))


def _of_modules(modules: Iterable[ModuleType], rooms: Iterable[str]) -> Iterator[Family]:
    for module in modules:
        for name, metric in vars(module).items():
            if isinstance(metric, MetricWrapperBase) and _defines(module, name):
                found = next(iter(metric.collect()))
                yield _family(found, _processes(name, rooms), dict.fromkeys(metric._labelnames, ()))


def of_queue() -> Iterator[Family]:
    """What the dispatcher reads from Postgres."""
    status = QueueStatus({}, paused=False, changed_at=None, note=None)
    reading = QueueReading(status, (("", "", 0),), _some_forecast(), (("", False),), (("", "", 0.0),), (("", 0, 0),))
    return (_family(found, "dispatcher", _labels(found)) for found in families(reading))


def _some_forecast() -> Forecast:
    """A forecast that every one of its metrics is made from."""
    made = forecast(History(), Observation(at=0.0, waiting=(WaitingJobs(Key("hook"), 1.0),)))
    return replace(made, publish_left=0.0, publish_left_p90=0.0)


def of_engine() -> Iterator[Family]:
    """What an engine reports about itself."""
    return (_family(found, "engine", _labels(found)) for found in registry_of(NullEngine(), "").collect())


def _family(found: Metric, processes: str, labels: dict[str, tuple[str, ...]]) -> Family:
    shown = [code(label) + (f" ({', '.join(values)})" if any(values) else "") for label, values in labels.items()]
    name = found.name + _SUFFIXES.get(found.type, "")
    return Family(name, found.type, ", ".join(shown), processes, found.documentation)


def _labels(found: Metric) -> dict[str, tuple[str, ...]]:
    """The labels of a family, with the values that they have; those of an `info` differ from engine to engine."""
    names: Sequence[str] = getattr(found, "_labelnames", ())
    if found.type == "info":
        return dict.fromkeys(found.samples[0].labels, ())
    return {name: tuple(sample.labels[name] for sample in found.samples) for name in names}


def _defines(module: ModuleType, name: str) -> bool:
    return re.search(rf"^{name} = ", _text(Path(str(module.__file__))), re.MULTILINE) is not None


def _processes(name: str, rooms: Iterable[str]) -> str:
    """The processes whose code in these rooms uses this constant. Raises `LookupError` for one that no process runs."""
    use = re.compile(rf"\b{name}\.(?:labels|inc|dec|set|observe|time|track_inprogress)\b")
    files = [path for room in rooms for path in (ROOT / "thothy_ai" / room).rglob("*.py")]
    users = sorted({_process(path) for path in files if use.search(_text(path))})
    if not users:
        raise LookupError(f"nothing counts {name}")
    return ", ".join(users)


def _process(path: Path) -> str:
    file = path.relative_to(ROOT).as_posix()
    found = [process for prefix, process in PROCESSES.items() if file.startswith(prefix)]
    if not found:
        raise LookupError(f"{file} counts something: name its process in {Path(__file__).name}")
    return found[0]


def _ports() -> list[tuple[str, str, str]]:
    """Where each process serves: in Compose, and with `thothy up`."""
    scraped = {target.partition(":")[0]: target for target in _targets()}
    offsets = {name: f"`THOTHY_METRICS_PORT` + {offset}" for offset, name in enumerate((*SERVICES, DOOR))}
    return [(name, code(scraped[name]), offsets[name].removesuffix(" + 0")) for name in (*SERVICES, DOOR)]


def _targets() -> Iterator[str]:
    """`host:port` of everything that Prometheus scrapes."""
    for job in _yaml("deploy/prometheus/prometheus.yml")["scrape_configs"]:
        for group in job.get("static_configs", ()):
            yield from group["targets"]
        for group in job.get("dns_sd_configs", ()):
            yield from (f"{name}:{group['port']}" for name in group["names"])


def _prometheus_port() -> str:
    (published,) = _yaml("compose.yaml")["services"]["prometheus"]["ports"]
    return str(published).rpartition(":")[2]


def _alerts() -> Iterator[tuple[str, str, str, str]]:
    for group in _yaml("deploy/prometheus/alerts.yml")["groups"]:
        for rule in _rules(group["rules"]):
            name, says = rule["alert"], _says(rule["annotations"]["summary"])
            yield f"[{name}](runbooks/{name}.md)", rule["labels"]["severity"], rule.get("for", "at once"), says


def _says(summary: str) -> str:
    """A summary with the names of its values; of two texts, the one for an alert with the label."""
    either = r"\{\{ with (\$labels\.\w+) \}\}(.*?)\{\{ \. \}\}(.*?)\{\{ else \}\}.*?\{\{ end \}\}"
    labelled = re.sub(either, r"\2{{ \1 }}\3", summary)
    return re.sub(r"\{\{[^}$]*\$(?:labels\.)?(\w+)[^}]*\}\}", r"*\1*", labelled)


def _rules(rules: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    return (rule for rule in rules if "alert" in rule)


def _yaml(file: str) -> Any:
    return yaml.safe_load(_text(ROOT / file))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
