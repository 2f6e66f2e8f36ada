"""Fragments shared by the bill's statements: the sums of usage, and an engine session's devices, model and residency.
`fragments.py` includes them.
"""

from __future__ import annotations

from typing import Final

# The columns of `usage_by_hour` to sum.
SUMS: Final = (
    "attempts", "accepted", "rejected", "lost", "dead", "cancelled", "expired",
    "prompt_tokens", "cached_tokens", "output_tokens", "saved_tokens",
    "resident_seconds", "busy_seconds", "useful_seconds", "verification_seconds", "requests", "interactive_seconds",
    "with_output", "with_artifact", "clean", "to_edit", "decided", "approved", "draft_seconds", "redeemed_seconds",
)  # fmt: skip
# The kind under which requests over HTTP are billed.
INTERACTIVE: Final = "interactive"
NOTHING: Final = ", ".join(["0"] * len(SUMS))
# An engine without a GPU counts as one device. A model without a name for jobs is billed under that of its files.
DEVICES: Final = "greatest(session.gpus, 1)"
MODEL_NAME: Final = "coalesce(nullif(session.model_name, ''), session.model, '')"
# An engine with a recent heartbeat is resident until now; any other, until its last heartbeat.
RESIDENT_UNTIL: Final = (
    "CASE WHEN ended_at IS NOT NULL THEN ended_at"
    " WHEN heartbeat_at > now() - <silence> THEN now() ELSE heartbeat_at END"
)
# The residency of engines between :since and :until, cut at hours.
RESIDENCY: Final = """
    SELECT hour, '' AS tenant, '' AS kind, model_name, '' AS adapter,
        sum(extract(epoch FROM least(hour + interval '1 hour', until_at) - greatest(hour, since_at)) * devices)
            AS resident_seconds
    FROM (
        SELECT <model_name> AS model_name, <devices> AS devices,
            greatest(started_at, CAST(:since AS timestamptz)) AS since_at,
            least(<until>, CAST(:until AS timestamptz)) AS until_at
        FROM engine_session AS session
    ) AS clipped, generate_series(date_trunc('hour', since_at), until_at, interval '1 hour') AS hour
    WHERE until_at > since_at AND until_at > hour
    GROUP BY hour, model_name"""


def _usage(**sums: str) -> str:
    """All sums, in their order; those that are not given are 0."""
    return ", ".join(f"{sums.get(name, '0')} AS {name}" for name in SUMS)


def _seconds(column: str, condition: str = "", of: str = "attempt") -> str:
    return f"coalesce(sum({of}.{column} * {DEVICES}){condition}, 0)"


def _of_session(expression: str) -> str:
    return f"(SELECT {expression} FROM engine_session AS session WHERE session.id = engine_session_id)"  # noqa: S608 - constants


FRAGMENTS: Final[dict[str, str]] = {
    "devices": DEVICES,
    "model_name": MODEL_NAME,
    "usage_sums": ", ".join(SUMS),
    "summed_usage": ", ".join(f"sum({name})" for name in SUMS),
    "no_usage": NOTHING,
    "only_resident": ", ".join(name if name == "resident_seconds" else "0" for name in SUMS),
    # Of `attempt`, left joined with its `session`.
    "attempt_usage": _usage(
        attempts="count(*)",
        accepted="count(*) FILTER (WHERE outcome = 'succeeded')",
        rejected="count(*) FILTER (WHERE outcome = 'rejected')",
        lost="count(*) FILTER (WHERE outcome IN ('lost', 'released'))",
        prompt_tokens="sum(attempt.prompt_tokens)",
        cached_tokens="sum(attempt.cached_tokens)",
        output_tokens="sum(attempt.output_tokens)",
        saved_tokens="sum(attempt.saved_tokens)",
        busy_seconds=_seconds("compute_seconds"),
        useful_seconds=_seconds("compute_seconds", " FILTER (WHERE outcome = 'succeeded')"),
        verification_seconds=_seconds("verification_seconds"),
    ),
    # Of `interactive_usage AS asked`, left joined with its `session`.
    "interactive_usage": _usage(
        prompt_tokens="sum(asked.prompt_tokens)",
        cached_tokens="sum(asked.cached_tokens)",
        output_tokens="sum(asked.output_tokens)",
        busy_seconds=_seconds("compute_seconds", of="asked"),
        useful_seconds=_seconds("useful_seconds", of="asked"),
        requests="sum(asked.requests)",
        interactive_seconds=_seconds("compute_seconds", of="asked"),
    ),
    "interactive_kind": f"'{INTERACTIVE}'",
    # Of `job`: those that ended without success.
    "job_usage": _usage(
        dead="count(*) FILTER (WHERE state = 'dead')",
        cancelled="count(*) FILTER (WHERE state = 'cancelled')",
        expired="count(*) FILTER (WHERE state = 'expired')",
    ),
    "add_usage": "ON CONFLICT (hour, tenant, kind, model_name, adapter) DO UPDATE SET "
    + ", ".join(f"{name} = usage_by_hour.{name} + excluded.{name}" for name in SUMS),
    # What each session's attempts of open hours are billed for; and its seconds for which nothing accounts (`recent` is
    # left joined). Those of a session that is not settled may still be recorded.
    "recent_usage": "SELECT engine_session_id AS id, sum(compute_seconds) AS seconds FROM attempt"
    " WHERE finished_at >= (SELECT closed_until FROM usage_progress WHERE name = 'default') GROUP BY 1",
    "unattributed_seconds": "CASE WHEN settled_at IS NULL THEN 0 ELSE greatest(0,"
    " busy_seconds - direct_seconds - billed_seconds - coalesce(recent.seconds, 0)) END",
    # Seconds that were `added` to attempts of closed hours, while `progress` is locked; and how they restate the bill.
    "late_usage": "SELECT date_trunc('hour', finished_at) AS hour, tenant, kind, engine_session_id, adapter, added,"
    f" {_of_session(MODEL_NAME)} AS model_name, {_of_session(f'added * {DEVICES}')} AS busy",
    "restate": "INSERT INTO usage_by_hour AS known"
    " (hour, tenant, kind, model_name, adapter, busy_seconds, closed_seconds, revised_at)"
    " SELECT hour, tenant, kind, coalesce(model_name, ''), adapter, sum(coalesce(busy, added)), 0, now() FROM late"
    " GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5"
    " ON CONFLICT (hour, tenant, kind, model_name, adapter) DO UPDATE"
    " SET busy_seconds = known.busy_seconds + excluded.busy_seconds, revised_at = now()",
}


# Of a row of `job`: it succeeded, and no artifact of it was accepted, neither by gates nor by a person.
TO_EDIT: Final = (
    "(job.state = 'succeeded' AND job.review IS NOT NULL AND job.review <> 'approved' AND NOT EXISTS"
    " (SELECT FROM artifact AS made WHERE made.job_id = job.id AND made.verdict = 'accepted'))"
)
# Of `attempt`, joined with its `job`: its draft is the one that a person edits, or has edited and approved.
KEPT_DRAFT: Final = (
    "attempt.outcome = 'rejected' AND job.review IN ('needs_review', 'needs_edit', 'held', 'approved')"
    " AND attempt.attempt = (SELECT artifact.attempt FROM artifact WHERE artifact.job_id = job.id"
    " ORDER BY {best_draft} LIMIT 1)"
)


def _yields(jobs: str, attempts: str, kept_draft: str) -> str:
    """What people may still change after an hour is closed: it is read from these jobs and attempts until they are
    deleted, and summed then. The seconds of a draft count in the hour in which it was written.
    """
    of_jobs = _usage(
        with_output="count(*)",
        with_artifact="count(*) FILTER (WHERE accepted)",
        clean="count(*) FILTER (WHERE clean)",
        to_edit="count(*) FILTER (WHERE to_edit)",
        decided="count(*) FILTER (WHERE review IN ('approved', 'rejected'))",
        approved="count(*) FILTER (WHERE review = 'approved')",
    )
    of_drafts = _usage(
        draft_seconds=_seconds("compute_seconds", " FILTER (WHERE review <> 'approved')"),
        redeemed_seconds=_seconds("compute_seconds", " FILTER (WHERE review = 'approved')"),
    )
    return f"""
    SELECT date_trunc('hour', finished_at) AS hour, tenant, kind,
        coalesce({_of_session(MODEL_NAME)}, '') AS model_name, adapter, {of_jobs}
    FROM (
        SELECT job.id, job.tenant, job.kind, job.finished_at, job.engine_session_id, job.adapter, review,
            {TO_EDIT} AS to_edit,
            bool_or(verdict = 'accepted') AS accepted, bool_or(verdict = 'accepted' AND findings = '[]') AS clean
        FROM job JOIN artifact ON artifact.job_id = job.id
        WHERE {jobs}
        GROUP BY job.id
    ) AS produced
    GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    SELECT date_trunc('hour', attempt.finished_at), attempt.tenant, attempt.kind, {MODEL_NAME}, attempt.adapter,
        {of_drafts}
    FROM attempt JOIN job ON job.id = attempt.job_id
        LEFT JOIN engine_session AS session ON session.id = attempt.engine_session_id
    WHERE {attempts} AND {kept_draft}
    GROUP BY 1, 2, 3, 4, 5"""  # noqa: S608 - constants


def usage_fragments(silence: str, best_draft: str) -> dict[str, str]:
    """The fragments; an engine without a heartbeat for this interval is no longer resident."""
    until = RESIDENT_UNTIL.replace("<silence>", silence)
    residency = RESIDENCY.replace("<model_name>", MODEL_NAME).replace("<devices>", DEVICES).replace("<until>", until)
    kept_draft = KEPT_DRAFT.format(best_draft=best_draft)
    window = "{0}.finished_at >= :since AND {0}.finished_at < :until"
    doomed = "= ANY(ARRAY(SELECT id FROM doomed))"
    return {
        **FRAGMENTS,
        "resident_until": until,
        "residency": residency,
        "to_edit": TO_EDIT,
        "kept_draft": kept_draft,
        "yields_of_window": _yields(window.format("job"), window.format("attempt"), kept_draft),
        "yields_of_doomed": _yields(f"job.id {doomed}", f"attempt.job_id {doomed}", kept_draft),
    }
