"""Checks edits of artifacts against their class and the kind's checks. Imports little: judges use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic.config import ExtraValues

from thothy_ai.jobs import Artifact, registry
from thothy_ai.jobs.api.verdict import Finding, RejectionReason, printable
from thothy_ai.jobs.plans.judging import findings_of
from thothy_ai.jobs.problems import first_problem


@dataclass(frozen=True, slots=True)
class CheckedEdit:
    """An edit and the checks' findings as they would be stored, and why the edit would be only a draft."""

    body: dict[str, Any]
    problem: str | None
    findings: list[dict[str, Any]]


def artifact_of(kind: registry.AnyKind, body: object, extra: ExtraValues | None = None) -> Artifact | str:
    """The artifact with these fields, or the field that breaks the schema."""
    try:
        found: Artifact = kind.artifact.model_validate(body, extra=extra)
    except ValidationError as error:
        return ": ".join(filter(None, first_problem(error, kind.artifact.model_fields)))
    return found


def check_edit(name: str, request: Any, body: Mapping[str, Any]) -> CheckedEdit:
    """Run the checks of the kind on an edit. CPU-bound. Raises `UnknownKindError`."""
    kind = registry.find(name)
    artifact = artifact_of(kind, body)
    if isinstance(artifact, str):
        return CheckedEdit(dict(body), artifact, [])
    values = artifact.model_dump(mode="json")
    checks = getattr(kind.plan, "checks", lambda *_: ())
    try:
        parsed = kind.parsed(request)
        found = findings_of(filter(None, checks(parsed, artifact)), values, kind.locale(parsed))
    except Exception as error:  # noqa: BLE001 - a kind may be third-party code
        return CheckedEdit(values, None, [unchecked(repr(error))])
    return CheckedEdit(values, None, [finding.stored for finding in found])


def unchecked(why: str) -> dict[str, Any]:
    """The finding in an edit that the checks could not judge."""
    return Finding(RejectionReason.VALIDATOR_ERROR, printable(why)).stored
