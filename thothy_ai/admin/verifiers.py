"""Records the measurements of models that verify claims, for workers to read."""

from __future__ import annotations

from sqlalchemy import Engine

from thothy_ai.db.statements import statement
from thothy_ai.plans.context import Doubts, VerifierModel


def record_verifier(engine: Engine, verifier: VerifierModel, doubts: Doubts) -> None:
    """Record the doubts that weigh this verifier's findings, from the next attempt of any worker on."""
    values = {"found": doubts.found, "false_alarms": doubts.false_alarms}
    with engine.begin() as connection:
        connection.execute(statement("admin/record_verifier"), verifier._asdict() | values)
