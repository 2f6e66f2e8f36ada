"""The reason of a finding, for tables of tests."""

from __future__ import annotations

from thothy_ai.jobs.api.verdict import Rejection, RejectionReason


def reason(finding: Rejection | None) -> RejectionReason | None:
    return finding.reason if finding else None
