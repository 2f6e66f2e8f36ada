"""Counts how often each rule was right by people's decisions, which label texts as they occur in real work.

A rule was right about a text that was rejected or sent back, and about a field that was changed before the text was
approved. It was wrong about a text or field that was approved as the model wrote it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.db.states import Action
from thothy_ai.jobs import RejectionReason
from thothy_ai.jobs.checks.gates import is_gate
from thothy_ai.producer.decisions import leaves

MIN_PRECISION = 0.95  # of a gate, judged over at least `MIN_DECISIONS`
MIN_DECISIONS = 50


@dataclass(frozen=True, slots=True)
class DecidedRule:
    """The findings of a rule or the model's verification (`by`) for one reason, and how often people agreed."""

    reason: str
    by: str
    gate: bool
    right: int
    wrong: int

    @property
    def precision(self) -> float:
        """The share of decisions in which the rule was right."""
        return self.right / (self.right + self.wrong)

    @property
    def unfit(self) -> bool:
        """Whether the rule is a gate, and was wrong too often for that."""
        return self.gate and self.right + self.wrong >= MIN_DECISIONS and self.precision < MIN_PRECISION


def decided_rules(engine: Engine, *, since: datetime | None = None, tenant: str | None = None) -> list[DecidedRule]:
    """The rules with findings in texts that people decided on: gates first, then the most frequent first."""
    with engine.connect() as connection:
        rows = connection.execute(statement("admin/decided_artifacts"), {"since": since, "tenant": tenant})
        return counted_rules(row._mapping for row in rows)


def counted_rules(rows: Iterable[Mapping[Any, Any]]) -> list[DecidedRule]:
    """The rules in rows of `admin/decided_artifacts`. Several findings of a rule in one text count once."""
    counts: dict[tuple[str, str, bool], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        written, decided = dict(leaves(row["written"] or {})), dict(leaves(row["decided"] or {}))
        texts: dict[tuple[str, str, bool], bool] = {}
        for finding in _found(row):
            part, reason = finding["part"], finding["reason"]
            changed = _at(part, written) != _at(part, decided)
            gate = reason in list(RejectionReason) and is_gate(RejectionReason(reason), row["locale"])
            rule = reason, finding["by"], gate and finding["by"] == "rule"
            texts[rule] = texts.get(rule, False) or row["action"] != Action.APPROVE or changed
        for rule, right in texts.items():
            counts[rule][not right] += 1
    rules = [DecidedRule(*rule, right, wrong) for rule, (right, wrong) in counts.items()]
    return sorted(rules, key=lambda rule: (not rule.gate, -rule.right - rule.wrong, rule.reason))


def _found(row: Mapping[Any, Any]) -> list[Mapping[str, Any]]:
    """The findings, and the gate that rejected the text if it is not among them."""
    found, reason = list(row["findings"]), row.get("reason")
    if reason in {None, RejectionReason.SENT_BACK} or any(each["reason"] == reason for each in found):
        return found
    return [*found, {"reason": reason, "part": None, "by": "rule"}]


def _at(part: str | None, texts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The texts in a part and in the fields below it; without a part, all texts."""
    if part is None:
        return texts
    return {name: text for name, text in texts.items() if name == part or name.startswith(f"{part}.")}
