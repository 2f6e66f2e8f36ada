"""A bill as text: idle time stands in a column of its own, and nobody's nothing has no row."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from thothy_ai.admin.report.bill import Bill, Prices
from thothy_ai.admin.report.usage import BilledUsage, UsageRow
from thothy_ai.cli.views.bill import dimension_lines, undecided_lines

HOUR = datetime(2026, 11, 20, 12, tzinfo=UTC)


def row(kind: str, model: str, usage: BilledUsage) -> UsageRow:
    return UsageRow(HOUR, "t" if kind else "", kind, model, usage)


USED = row("hook", "small", BilledUsage(busy_seconds=40.0, useful_seconds=30.0, accepted=10))
RESIDENT = row("", "small", BilledUsage(resident_seconds=100.0))
NOTHING = row("hook", "", BilledUsage(attempts=1))


def table(bill: Bill, dimension: str = "model") -> dict[str, list[str]]:
    """The cells of each row, by its first."""
    lines = (line.split() for line in dimension_lines(bill, dimension, 200))  # type: ignore[arg-type]
    return {first: rest for first, *rest in (line for line in lines if line)}


def test_idle_time_is_not_among_the_busy_seconds() -> None:
    shown = table(Bill((USED, RESIDENT), Prices(default=3600.0)))
    assert shown["idle"] == ["-", "-", "-", "-", "-", "-", "60.0", "-", "60.00", "-", "-"]
    assert shown["all"] == ["10", "-", "-", "40.0", "30.0", "10.0", "60.0", "10.000", "100.00", "10.00", "10.00"]
    assert shown["small"][:7] == ["10", "-", "-", "40.0", "30.0", "10.0", "-"]


def test_an_adapter_has_its_own_line_at_its_model_s_price_and_idle_time_is_counted_once() -> None:
    acme = replace(
        row("hook", "small", BilledUsage(busy_seconds=20.0, useful_seconds=20.0, accepted=4)), adapter="acme"
    )
    for prices, cost in (
        (Prices(models={"small": 3600.0}), 20.0),
        (Prices(default=1.0, models={"small": 3600.0, "acme": 7200.0}), 40.0),
    ):
        bill = Bill((USED, acme, RESIDENT), prices)
        lines = bill.by("model")
        assert {name: (of.usage.accepted, of.idle_seconds, of.cost) for name, of in lines.items()} == {
            "acme": (4, 0.0, cost), "small": (10, 40.0, 40.0),
        }  # fmt: skip
        assert (bill.total.idle_seconds, bill.total.cost) == (40.0, 40.0 + cost)
        assert bill.by("kind")["hook"].usage.accepted == 14
    assert table(bill)["acme"][:5] == ["4", "-", "-", "20.0", "20.0"]


@pytest.mark.parametrize("resident", [0.0, 50.0, 100.0, 1_000.0])
def test_lines_of_models_and_adapters_add_up_to_the_whole_residency(resident: float) -> None:
    """Also where attempts that began earlier make it shorter than the busy seconds."""
    asked = BilledUsage(busy_seconds=20.0, interactive_seconds=4.0, decided=2, approved=1)
    other = replace(row("hook", "large", BilledUsage(busy_seconds=8.0)), adapter="acme")  # of another model
    rows = [replace(row("hook", "small", asked), adapter=name) for name in ("acme", "acme", "nova")]
    rows += [USED, other, row("", "large", BilledUsage(resident_seconds=10.0)),
             row("", "small", BilledUsage(resident_seconds=resident))]  # fmt: skip
    bill = Bill(tuple(rows))
    lines, total = bill.by("model"), bill.total
    assert sum(of.usage.resident_seconds for of in lines.values()) == pytest.approx(10.0 + resident)
    assert sum(of.resident_seconds for of in lines.values()) == pytest.approx(10.0 + resident)
    assert sum(of.usage.busy_seconds for of in lines.values()) == total.usage.busy_seconds == 108.0
    assert sum(of.idle_seconds for of in lines.values()) == pytest.approx(total.idle_seconds)
    for name, of in lines.items():
        assert of.usage.resident_seconds >= 0
        if resident >= 100.0:
            assert of.usage.resident_seconds == pytest.approx(of.usage.busy_seconds + of.idle_seconds), name
    if resident:
        assert lines["nova"].resident_seconds == pytest.approx(resident * 16 / (3 * 16 + 40))


def test_the_yields_and_drafts_have_columns_and_what_people_approve_once_they_decide() -> None:
    made = replace(USED.usage, with_output=20, with_artifact=10, clean=5, draft_seconds=4.0, redeemed_seconds=2.0)
    undecided = Bill((row("hook", "small", made), RESIDENT))
    assert table(undecided)["small"] == ["10", "50.0%", "25.0%", "40.0", "30.0", "6.0", "4.0", "-", "4.000"]
    assert [*undecided_lines(undecided)][1].startswith("Nobody has decided")
    decided = Bill((row("hook", "small", replace(made, decided=3, approved=2)), RESIDENT))
    for dimension, name in (("kind", "hook"), ("tenant", "t"), ("model", "small"), ("kind", "all")):
        assert table(decided, dimension)[name][:4] == ["10", "50.0%", "25.0%", "72.0"]  # 2 in 100 s of residency
    assert [*undecided_lines(decided)] == []


def test_attempts_that_never_had_an_engine_have_no_row_unless_they_used_something() -> None:
    names = set(table(Bill((USED, RESIDENT, NOTHING))))
    assert not any(name.startswith("(no") for name in names)
    billed = row("hook", "", BilledUsage(busy_seconds=1.0))
    assert any(name.startswith("(no") for name in table(Bill((USED, billed))))


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("prices", [Prices(), Prices(default=3600.0)])
def test_a_bill_of_large_figures_fits_the_width_and_loses_none(prices: Prices, width: int) -> None:
    usage = BilledUsage(busy_seconds=1_234_567.8, useful_seconds=1_234_000.5, accepted=654_321)
    kinds = [row(f"regional_round_up_{at}", "small", usage) for at in range(3)]
    bill = Bill((*kinds, replace(RESIDENT, usage=BilledUsage(resident_seconds=9_999_999.9))), prices)
    lines, wide = dimension_lines(bill, "kind", width), dimension_lines(bill, "kind", 10_000)
    assert max(map(len, lines)) <= width
    assert {word for line in wide for word in line.split() if word[0] not in "─r"} <= set(" ".join(lines).split())
