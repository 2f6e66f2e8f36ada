"""A bill as text: what each kind, model, tenant or hour used and cost, and the idle time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from thothy_ai.admin.report.bill import NO_KEY, NO_MODEL, Bill, BillLine, Dimension, money
from thothy_ai.admin.report.usage import UsageRow
from thothy_ai.cli.views.tables import Column, count, folded, percent
from thothy_ai.cli.views.times import local

IDLE, ALL = "idle", "all"


def bill_lines(bill: Bill, unit: str, width: int) -> Iterator[str]:
    """The bill of a drain report, by kind, and by model and tenant if there are several."""
    total = bill.total.usage
    if not total.busy_seconds and not total.resident_seconds:
        return
    yield from ("", heading(bill, unit))
    shown: list[Dimension] = ["kind"]
    shown += ["model"] if len(bill.by("model").keys() - {""}) > 1 else []
    shown += ["tenant"] if len(bill.by("tenant")) > 1 else []
    shown += ["key"] if any(used.key for used in bill.keys) else []
    for dimension in shown:
        yield from ("", *dimension_lines(bill, dimension, width))
    yield from undecided_lines(bill)
    yield from declared_lines(bill)
    yield from restated_lines(bill, unit)


def heading(bill: Bill, unit: str) -> str:
    """The unit of the columns and the prices that were applied."""
    seconds = unit.replace("-hour", "-seconds")
    if not bill.priced:
        return f"Bill in {seconds}; with THOTHY_PRICE_PER_COMPUTE_HOUR also in money"
    default = [money(bill.prices.default)] if bill.prices.default is not None else []
    models = [f"{money(price)} for {name}" for name, price in bill.prices.models.items()]
    return f"Bill in {seconds} and {bill.prices.currency}, at {', '.join([*default, *models])} per {unit}"


def dimension_lines(bill: Bill, dimension: Dimension, width: int) -> list[str]:
    """A table with a row for each kind, model, tenant or hour, then idle time and the total; or for each key."""
    rows = dimension_rows(bill, dimension)
    heads = [Column(dimension, text=True), *(Column(head, number=True) for head in columns(bill))]
    return folded(heads, rows, width)


def dimension_rows(bill: Bill, dimension: Dimension) -> list[list[str]]:
    """The rows of that table. A line without an engine is left out unless it used something."""
    lines, total = bill.by(dimension).items(), bill.total
    shown = ((name, line) for name, line in lines if name or line.usage.busy_seconds or line.usage.accepted)
    rows = [[label(name, dimension), *cells(line, bill)] for name, line in shown]
    if dimension == "key":
        return rows
    return [*rows, [IDLE, *idle_cells(total, bill)], [ALL, *all_cells(total, bill)]]


def undecided_lines(bill: Bill) -> Iterator[str]:
    """A line that there are no approved artifacts to count yet."""
    if bill.total.usage.with_output and not bill.total.usage.decided:
        yield from ("", "Nobody has decided on an artifact yet: what people approve per hour is not known.")


def declared_lines(bill: Bill) -> Iterator[str]:
    """The engines whose seconds follow from their operator's declaration, divided by tokens."""
    if bill.declared:
        yield from (
            "",
            "Declared, not measured; divided among jobs by their tokens:",
            *(f"  {each}" for each in bill.declared),
        )


def restated_lines(bill: Bill, unit: str) -> Iterator[str]:
    """The hours that changed after they were closed."""
    if not bill.restated:
        return
    seconds, hours = unit.replace("-hour", "-seconds"), {row.hour for row in bill.restated}
    changed = sum(row.restated_by for row in bill.restated)
    yield ""
    yield f"Restated since they were closed: {count(len(hours), 'hour')}, by {changed:+,.1f} {seconds} in all"
    yield from (f"  {restatement(row)}" for row in bill.restated[-5:])


def restatement(row: UsageRow) -> str:
    what = (
        f"{row.kind} of {row.tenant} on {row.billed_as or NO_MODEL}" if row.kind else f"residency of {row.model_name}"
    )
    return f"{local(row.hour)}  {what}: {row.restated_by:+,.1f} s on {local(row.restated_at)}"


def columns(bill: Bill) -> Sequence[str]:
    seconds = (
        *(["requests"] if bill.total.usage.requests else []),
        "artifacts",
        "form yield",
        "clean yield",
        *(["approved per hour"] if bill.total.usage.decided else []),
        "busy s",
        "useful s",
        *(["drafts s"] if _has_drafts(bill) else []),
        "wasted s",
        "idle s",
        "s per artifact",
    )
    return (*seconds, "cost", "cost of waste", "cost per artifact") if bill.priced else seconds


def cells(line: BillLine, bill: Bill) -> list[str]:
    costs = (line.cost, line.wasted_cost, line.cost_per_artifact)
    return _cells(line, bill, "-", line.seconds_per_artifact, costs)


def idle_cells(total: BillLine, bill: Bill) -> list[str]:
    of = columns(bill)
    shown = dict.fromkeys(of, "-") | {"idle s": f"{total.idle_seconds:,.1f}"}
    return list((shown | {"cost": money(total.idle_cost)} if bill.priced else shown).values())


def all_cells(total: BillLine, bill: Bill) -> list[str]:
    costs = (total.full_cost, total.wasted_cost, total.full_cost_per_artifact)
    return _cells(total, bill, f"{total.idle_seconds:,.1f}", total.full_seconds_per_artifact, costs)


def _cells(
    line: BillLine, bill: Bill, idle: str, per_artifact: float | None, costs: Sequence[float | None]
) -> list[str]:
    """The cells of a line, in the order of `columns`."""
    of, total, approved = line.usage, bill.total.usage, line.approved_per_compute_hour
    return [
        *([f"{of.requests:,}"] if total.requests else []),
        f"{of.accepted:,}",
        percent(of.form_yield),
        percent(of.clean_yield),
        *(["-" if approved is None else f"{approved:,.1f}"] if total.decided else []),
        f"{of.busy_seconds:,.1f}",
        f"{of.useful_seconds:,.1f}",
        *([f"{of.draft_seconds + of.redeemed_seconds:,.1f}"] if _has_drafts(bill) else []),
        f"{of.wasted_seconds:,.1f}",
        idle,
        "-" if per_artifact is None else f"{per_artifact:,.3f}",
        *(map(money, costs) if bill.priced else ()),
    ]


def _has_drafts(bill: Bill) -> bool:
    return bool(bill.total.usage.draft_seconds or bill.total.usage.redeemed_seconds)


def label(name: str, dimension: Dimension) -> str:
    return (
        local(datetime.fromisoformat(name))[:16]
        if dimension == "hour"
        else name or (NO_KEY if dimension == "key" else NO_MODEL)
    )
