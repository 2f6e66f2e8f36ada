"""The bill: usage by hour, tenant, kind or model, and its cost.

- *cost*: the price of the busy seconds, of attempts with and without an artifact and of requests over HTTP.
- An adapter has its own line among the models. Its busy seconds have the model's price unless the adapter has one, and
  count as its share of the model's residency. The model has the rest of the residency, with all idle time.
- *idle cost*: the price of the seconds in which an engine was resident and computed neither for jobs nor for requests
  over HTTP. It belongs to no kind and no tenant, and is therefore only in the total and in lines of models and hours.
- *cost per artifact*: the cost, except that of requests over HTTP, divided by the accepted artifacts; in the total, the
  cost includes the idle cost.
- *approved per compute-hour*: as in the drain report, where a kind's or a tenant's share of the residency is its share
  of the busy seconds of jobs. An adapter's share is of its model's residency.

Only seconds are stored. Prices come from the current settings, and a bill names them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from thothy_ai.admin.report.usage import SUMS, BilledUsage, KeyUsage, UsageRow
from thothy_ai.settings import Settings
from thothy_ai.settings.values import prices_by_name

HOUR: Final = 3600.0
Dimension = Literal["kind", "model", "tenant", "key", "hour"]
NO_MODEL, NO_KEY = "(no engine)", "(no key)"  # names of lines without one
DIMENSIONS: Final[tuple[Dimension, ...]] = ("kind", "model", "tenant", "key", "hour")


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of one hour of one device."""

    default: float | None = None  # for models without their own price
    models: Mapping[str, float] = field(default_factory=dict)  # of models and adapters, by name
    currency: str = "USD"

    @classmethod
    def of(cls, settings: Settings) -> Prices:
        return cls(settings.price_per_compute_hour, prices_by_name(settings.model_prices), settings.currency)

    def cost(self, model: str, adapter: str, seconds: float) -> float | None:
        """The price of device-seconds; None if neither the adapter nor the model has one."""
        price = self.models.get(adapter, self.models.get(model, self.default))
        return 0.0 if not seconds else None if price is None else seconds / HOUR * price


@dataclass(frozen=True, slots=True)
class BillLine:
    """The usage under one name. Costs are None if a price is missing."""

    usage: BilledUsage
    idle_seconds: float
    cost: float | None
    wasted_cost: float | None
    idle_cost: float | None
    interactive_cost: float | None  # the part of the cost for requests over HTTP
    resident_seconds: float  # the line's own, or its share of all

    @property
    def approved_per_compute_hour(self) -> float | None:
        """Jobs whose artifact a person approved per hour of residency; None while nobody has decided."""
        of = self.usage
        return of.approved * HOUR / self.resident_seconds if of.decided and self.resident_seconds else None

    @property
    def seconds_per_artifact(self) -> float | None:
        of = self.usage
        return of.jobs_seconds / of.accepted if of.accepted else None

    @property
    def full_seconds_per_artifact(self) -> float | None:
        per = self.seconds_per_artifact
        return None if per is None else per + self.idle_seconds / self.usage.accepted

    @property
    def cost_per_artifact(self) -> float | None:
        return self._per_artifact(self.cost)

    @property
    def full_cost(self) -> float | None:
        return None if self.cost is None or self.idle_cost is None else self.cost + self.idle_cost

    @property
    def full_cost_per_artifact(self) -> float | None:
        return self._per_artifact(self.full_cost)

    def _per_artifact(self, cost: float | None) -> float | None:
        if cost is None or self.interactive_cost is None or not self.usage.accepted:
            return None
        return (cost - self.interactive_cost) / self.usage.accepted

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys, described in docs/report.md."""
        return {
            **{name: getattr(self.usage, name) for name in SUMS},
            "form_yield": self.usage.form_yield,
            "clean_yield": self.usage.clean_yield,
            "approved_per_compute_hour": self.approved_per_compute_hour,
            "wasted_seconds": self.usage.wasted_seconds,
            "idle_seconds": self.idle_seconds,
            "seconds_per_artifact": self.seconds_per_artifact,
            "cost": self.cost,
            "wasted_cost": self.wasted_cost,
            "idle_cost": self.idle_cost,
            "interactive_cost": self.interactive_cost,
            "cost_per_artifact": self.cost_per_artifact,
            "full_cost_per_artifact": self.full_cost_per_artifact,
        }


@dataclass(frozen=True, slots=True)
class Bill:
    rows: tuple[UsageRow, ...] = ()
    prices: Prices = field(default_factory=Prices)
    declared: tuple[str, ...] = ()  # engines whose seconds are not measured
    keys: tuple[KeyUsage, ...] = ()

    @property
    def total(self) -> BillLine:
        return self._line(self.rows)

    @property
    def restated(self) -> list[UsageRow]:
        return [row for row in self.rows if row.restated_at is not None]

    @property
    def priced(self) -> bool:
        return self.prices.default is not None or bool(self.prices.models)

    def by(self, dimension: Dimension) -> dict[str, BillLine]:
        """Lines by name, sorted. Lines of kinds and tenants do not include residency, which belongs to neither. Only
        requests over HTTP have keys.
        """
        groups: dict[str, list[UsageRow | KeyUsage]] = defaultdict(list)
        if dimension == "key":
            for used in self.keys:
                groups[used.key].append(used)
        elif dimension == "model":
            for row in self._with_shares():
                groups[row.billed_as].append(row)
        else:
            for row in self.rows:
                if dimension == "hour":
                    groups[row.hour.isoformat()].append(row)
                elif row.kind:
                    groups[row.kind if dimension == "kind" else row.tenant].append(row)
        residency = {} if dimension == "hour" else self._residency(by_model=dimension == "model")
        return {name: self._line(groups[name], residency) for name in sorted(groups)}

    def _with_shares(self) -> Iterator[UsageRow]:
        """The rows, with the residency of models divided between models and adapters: an adapter gets its busy seconds,
        and the model the rest, including idle time.
        """
        resident, adapted = defaultdict[str, float](float), defaultdict[str, float](float)  # by model
        for row in self.rows:
            resident[row.model_name] += row.usage.resident_seconds
            adapted[row.model_name] += row.usage.busy_seconds if row.adapter else 0.0
        for row in self.rows:
            model, seconds = row.model_name, row.usage.resident_seconds
            if divided := min(adapted[model], resident[model]):
                # An attempt is billed to the hour of its end, so its seconds can exceed the residency in that hour.
                seconds *= 1 - divided / resident[model]
                seconds += row.usage.busy_seconds * divided / adapted[model] if row.adapter else 0.0
            yield replace(row, usage=replace(row.usage, resident_seconds=seconds))

    def _residency(self, *, by_model: bool) -> dict[str, float]:
        """Seconds of residency for each busy second of jobs, by model, or over all models."""
        used: dict[str, BilledUsage] = defaultdict(BilledUsage)
        for row in self.rows:
            used[row.model_name] += row.usage
        if not by_model:
            used = dict.fromkeys(used, sum(used.values(), BilledUsage()))
        return {model: of.resident_seconds / of.jobs_seconds for model, of in used.items() if of.jobs_seconds}

    def _line(self, rows: Iterable[UsageRow | KeyUsage], residency: Mapping[str, float] | None = None) -> BillLine:
        """The sum of these rows. `residency`: seconds of residency for each busy second of jobs, by model; if empty,
        the rows' own residency counts.
        """
        # Idle time is the rest of a model's residency, at least 0: an attempt is billed to the hour of its end.
        used: dict[tuple[str, str], BilledUsage] = defaultdict(BilledUsage)  # by model and adapter
        busy: dict[str, float] = defaultdict(float)
        for row in rows:
            used[row.model_name, row.adapter] += row.usage
            busy[row.model_name] += row.usage.busy_seconds
        idle = {
            (model, adapter): max(of.resident_seconds - busy[model], 0.0) if of.resident_seconds else 0.0
            for (model, adapter), of in used.items()
        }
        usage = sum(used.values(), BilledUsage())
        shares = residency or {}
        resident = sum(
            of.jobs_seconds * shares[model] if model in shares else of.resident_seconds
            for (model, _), of in used.items()
        )
        return BillLine(
            usage,
            sum(idle.values()),
            self._cost({name: of.busy_seconds for name, of in used.items()}),
            self._cost({name: of.wasted_seconds for name, of in used.items()}),
            self._cost(idle),
            self._cost({name: of.interactive_seconds for name, of in used.items()}),
            resident,
        )

    def _cost(self, seconds: Mapping[tuple[str, str], float]) -> float | None:
        costs = [self.prices.cost(*name, spent) for name, spent in seconds.items()]
        return sum(cost for cost in costs if cost is not None) if None not in costs else None

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys, described in docs/report.md."""
        return {
            "currency": self.prices.currency,
            "price_per_compute_hour": self.prices.default,
            "model_prices": dict(self.prices.models),
            "declared": list(self.declared),
            "total": self.total.to_json(),
            **{f"by_{name}": {key: of.to_json() for key, of in self.by(name).items()} for name in DIMENSIONS[:4]},
            "restated": [
                {
                    "hour": row.hour.isoformat(),
                    "tenant": row.tenant,
                    "kind": row.kind,
                    "model": row.billed_as,
                    "seconds": row.usage.resident_seconds + row.usage.busy_seconds,
                    "seconds_before": row.closed_seconds,
                    "restated_at": row.restated_at.isoformat() if row.restated_at else None,
                }
                for row in self.restated
            ],
        }


def money(amount: float | None) -> str:
    """Two decimals, or six below 1; a dash for None."""
    if amount is None:
        return "-"
    return f"{amount:,.2f}" if amount >= 1 or not amount else f"{amount:,.6f}"
