"""`Bill`: usage, summed by hour, tenant, kind or model, and what it cost.

- *cost*: the price of the busy seconds, of attempts with and without an artifact. A kind's, a tenant's or a model's.
- *idle cost*: the price of the seconds in which an engine was resident and computed for no attempt. It belongs to no
  kind and no tenant, and is therefore shown separately: in the total, and with its model and hour.
- *cost per artifact*: the cost divided by the accepted artifacts; in the total also with the idle cost.

Prices are those of today's settings: a bill is a report of seconds, and names the prices that it applied.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from thothy_ai.admin.report.usage import SUMS, BilledUsage, UsageRow
from thothy_ai.settings import Settings
from thothy_ai.settings.values import prices_by_name

HOUR: Final = 3600.0
Dimension = Literal["kind", "model", "tenant", "hour"]
DIMENSIONS: Final[tuple[Dimension, ...]] = ("kind", "model", "tenant", "hour")


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of an hour of one device: of models, and of all others; None where none is set."""

    default: float | None = None
    models: Mapping[str, float] = field(default_factory=dict)
    currency: str = "USD"

    @classmethod
    def of(cls, settings: Settings) -> Prices:
        """The prices of these settings."""
        return cls(settings.price_per_compute_hour, prices_by_name(settings.model_prices), settings.currency)

    def cost(self, model: str, seconds: float) -> float | None:
        """What so many device-seconds of a model cost; None where no price is set."""
        price = self.models.get(model, self.default)
        return 0.0 if not seconds else None if price is None else seconds / HOUR * price


@dataclass(frozen=True, slots=True)
class BillLine:
    """Usage under one name. Costs are None where a price is missing."""

    usage: BilledUsage
    idle_seconds: float
    cost: float | None
    wasted_cost: float | None
    idle_cost: float | None

    @property
    def seconds_per_artifact(self) -> float | None:
        """Busy device-seconds per accepted artifact."""
        return self.usage.busy_seconds / self.usage.accepted if self.usage.accepted else None

    @property
    def cost_per_artifact(self) -> float | None:
        """The cost per accepted artifact, without idle time."""
        return None if self.cost is None or not self.usage.accepted else self.cost / self.usage.accepted

    @property
    def full_cost(self) -> float | None:
        """The cost with that of the idle time."""
        return None if self.cost is None or self.idle_cost is None else self.cost + self.idle_cost

    @property
    def full_cost_per_artifact(self) -> float | None:
        """The cost per accepted artifact, with idle time."""
        return None if self.full_cost is None or not self.usage.accepted else self.full_cost / self.usage.accepted

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys, described in docs/report.md."""
        return {
            **{name: getattr(self.usage, name) for name in SUMS},
            "wasted_seconds": self.usage.wasted_seconds,
            "idle_seconds": self.idle_seconds,
            "seconds_per_artifact": self.seconds_per_artifact,
            "cost": self.cost,
            "wasted_cost": self.wasted_cost,
            "idle_cost": self.idle_cost,
            "cost_per_artifact": self.cost_per_artifact,
            "full_cost_per_artifact": self.full_cost_per_artifact,
        }


@dataclass(frozen=True, slots=True)
class Bill:
    """A window's usage and its prices."""

    rows: tuple[UsageRow, ...] = ()
    prices: Prices = field(default_factory=Prices)

    @property
    def total(self) -> BillLine:
        """Everything, idle time included."""
        return self._line(self.rows)

    @property
    def restated(self) -> list[UsageRow]:
        """The rows that changed after their hour was closed."""
        return [row for row in self.rows if row.restated_at is not None]

    @property
    def priced(self) -> bool:
        """Whether any price is set."""
        return self.prices.default is not None or bool(self.prices.models)

    def by(self, dimension: Dimension) -> dict[str, BillLine]:
        """Lines by name, in their order. Residency has neither kind nor tenant, and is in none of those lines."""
        groups: dict[str, list[UsageRow]] = defaultdict(list)
        for row in self.rows:
            if dimension not in {"kind", "tenant"} or row.kind:
                groups[_name(row, dimension)].append(row)
        return {name: self._line(groups[name]) for name in sorted(groups)}

    def _line(self, rows: Iterable[UsageRow]) -> BillLine:
        """Idle time is what is left of a model's residency: an hour may end amid an attempt that the next one bills."""
        models: dict[str, BilledUsage] = defaultdict(BilledUsage)
        for row in rows:
            models[row.model_name] += row.usage
        idle = {
            model: max(of.resident_seconds - of.busy_seconds, 0.0) if of.resident_seconds else 0.0
            for model, of in models.items()
        }
        return BillLine(
            sum(models.values(), BilledUsage()),
            sum(idle.values()),
            self._cost({model: of.busy_seconds for model, of in models.items()}),
            self._cost({model: of.wasted_seconds for model, of in models.items()}),
            self._cost(idle),
        )

    def _cost(self, seconds: Mapping[str, float]) -> float | None:
        costs = [self.prices.cost(model, spent) for model, spent in seconds.items()]
        return sum(cost for cost in costs if cost is not None) if None not in costs else None

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable keys, described in docs/report.md."""
        return {
            "currency": self.prices.currency,
            "price_per_compute_hour": self.prices.default,
            "model_prices": dict(self.prices.models),
            "total": self.total.to_json(),
            **{f"by_{name}": {key: of.to_json() for key, of in self.by(name).items()} for name in DIMENSIONS[:3]},
            "restated": [_restated(row) for row in self.restated],
        }


def _name(row: UsageRow, dimension: Dimension) -> str:
    match dimension:
        case "hour":
            return row.hour.isoformat()
        case "model":
            return row.model_name
        case _:
            return str(getattr(row, dimension))


def _restated(row: UsageRow) -> dict[str, Any]:
    key = {"hour": row.hour.isoformat(), "tenant": row.tenant, "kind": row.kind, "model": row.model_name}
    seconds = row.usage.resident_seconds + row.usage.busy_seconds
    at = row.restated_at.isoformat() if row.restated_at else None
    return {**key, "seconds": seconds, "seconds_before": row.closed_seconds, "restated_at": at}
