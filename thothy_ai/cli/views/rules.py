"""Prints how often each rule is right, on labelled texts or by people's decisions, for `thothy eval validators`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from thothy_ai.cli.views.tables import Column, percent, print_json, print_text, table

if TYPE_CHECKING:
    from thothy_ai.admin.decided_rules import DecidedRule
    from thothy_ai.jobs import RejectionReason


def print_declared(*, as_json: bool) -> None:
    """Print each reason, whether it rejects, and for how many labelled texts it was right, by language group."""
    from thothy_ai.jobs.checks.tables import table as declarations

    if as_json:
        return print_json(declarations("gates"))
    rows = []
    for reason, declared in declarations("gates").items():
        groups = {name: counts for name, counts in declared.items() if name not in {"gate", "finding_in"}}
        spared = declared.get("finding_in", ())
        for name, (right, wrong) in (groups or {"-": (0, 0)}).items():
            role = "gate" if declared["gate"] and name not in spared else "finding"
            rows.append([reason, role, name, right, wrong, percent(right / (right + wrong)) if groups else "-"])
    columns = [
        Column("reason"), Column("role", drop=2), Column("language group", drop=1), Column("right", number=True),
        Column("wrong", number=True), Column("precision", number=True),
    ]  # fmt: skip
    return table("", columns, rows)


def print_decided(rules: Sequence[DecidedRule], left: Sequence[RejectionReason], *, as_json: bool) -> list[str]:
    """Print each rule's precision by people's decisions, and name the gates that are wrong too often; returns these."""
    from thothy_ai.admin.decided_rules import MIN_DECISIONS, MIN_PRECISION

    unfit = [rule.reason for rule in rules if rule.unfit]
    if as_json:
        print_json([{**asdict(rule), "precision": rule.precision, "unfit": rule.unfit} for rule in rules])
        return unfit
    if not rules:
        typer.echo("Nobody has decided on a text in which a rule had found something.")
        return unfit
    rows = [
        [rule.reason, rule.by, "gate" if rule.gate else "finding", rule.right, rule.wrong, percent(rule.precision)]
        for rule in rules
    ]
    columns = [
        Column("reason"), Column("by", drop=1), Column("role"), Column("right", number=True),
        Column("wrong", number=True), Column("precision", number=True),
    ]  # fmt: skip
    table("", columns, rows)
    if unfit:
        both = ",".join(dict.fromkeys([*left, *unfit]))
        print_text(
            f"Below {MIN_PRECISION:.0%} in at least {MIN_DECISIONS} decisions, and yet rejecting: {', '.join(unfit)}."
            f" With THOTHY_GATES_AS_FINDINGS={both}, workers leave these to people."
        )
    return unfit
