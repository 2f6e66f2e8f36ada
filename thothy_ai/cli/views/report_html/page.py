"""The HTML page of the drain report: a headline, then a section for each question, with a plot and its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from html import escape
from importlib.resources import files

from thothy_ai.admin.report.drain_report import DrainReport
from thothy_ai.admin.report.timeline import Timeline
from thothy_ai.cli.views.report_html import plots, sections
from thothy_ai.cli.views.report_html.tables import figure, note, section
from thothy_ai.cli.views.times import local

EMPTY = "No jobs finished in this window."
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(report: DrainReport, timeline: Timeline) -> str:
    """The complete page. It loads nothing and runs no script."""
    title = f"Thothy report, {local(report.since)} to {local(report.until)}"
    more = "Jobs count at their finish; attempts, with all that they used, at their end."
    return document(title, _parts(report, timeline), more)


def document(title: str, parts: Iterable[str], more: str = "") -> str:
    """A page of these sections in the report's style, with `more` in the footer."""
    style = files("thothy_ai.cli.views.report_html").joinpath("style.css").read_text(encoding="utf-8")
    zone = escape(datetime.now().astimezone().strftime("%Z"))
    body = "\n".join(parts)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
<footer>Times are local ({zone}). {more}</footer>
</body>
</html>
"""


def _parts(report: DrainReport, timeline: Timeline) -> Iterator[str]:
    total, unit, bill = report.total, report.unit, report.bill.total.usage
    yield sections.headline(report)
    if total.finished:
        yield section(
            "Jobs finished", figure(plots.finished(timeline.bins)), sections.jobs_over_time(timeline.bins, unit)
        )
    else:
        yield f"<section><p>{EMPTY}</p></section>"
    if total.succeeded and total.resident_seconds:
        explained = f"Succeeded jobs divided by the {unit}s in which an engine was resident, busy or idle."
        yield section(f"Jobs per {unit}", note(explained), figure(plots.rate(timeline.bins, unit)))
    if report.kinds:
        yield section("Kinds", sections.kinds(report))
    if timeline.waits:
        explained = "From the enqueueing, or from the time given with --not-before, to the first start."
        yield sections.percentiles("Wait", explained, "jobs", timeline.waits)
    if timeline.runs:
        yield sections.percentiles("Run", "From the start of an attempt to its end.", "attempts", timeline.runs)
    if total.with_output or total.attempts:
        yield sections.artifact_yield(report)
    if total.prompt_tokens or total.output_tokens:
        yield section("Tokens", figure(plots.tokens(timeline.bins)), *sections.tokens(total, timeline.bins))
    if sum(timeline.device_seconds.values()):
        yield sections.device_time(report, timeline.device_seconds)
    if bill.resident_seconds or bill.busy_seconds:
        yield sections.bill(report.bill, unit)
    yield sections.engines(report)
