"""The bill's section of the HTML report: the same rows as in text."""

from __future__ import annotations

from thothy_ai.admin.report.bill import DIMENSIONS, Bill
from thothy_ai.cli.views.bill import columns, dimension_rows, heading, restatement
from thothy_ai.cli.views.report_html.tables import note, section, table

EXPLAINED = (
    "Useful seconds led to an accepted artifact; all other busy seconds are wasted. Idle time belongs to no kind"
    " or tenant: only the total includes it."
)


def bill_section(bill: Bill, unit: str) -> str:
    """Tables by kind, model and tenant, and what was restated."""
    parts = [note(f"{heading(bill, unit)}. {EXPLAINED}")]
    for dimension in DIMENSIONS[:3]:
        rows = dimension_rows(bill, dimension)
        parts.append(table(f"Bill by {dimension}", [dimension, *columns(bill, unit)], rows, total=True))
    if bill.restated:
        parts.append(note("Restated since their hour was closed: " + "; ".join(map(restatement, bill.restated[-20:]))))
    return section("Bill", *parts)
