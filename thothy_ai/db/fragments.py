"""What several statements share, written once: orders, predicates, intervals and limits.

A statement names a fragment in braces: `ORDER BY {planned_order}`. `statements.py` replaces it by its text when it
reads the file. Fragments do not qualify column names: a statement that uses one must keep those names unambiguous.
"""

from __future__ import annotations

from typing import Final

# The order in which jobs are dispatched and claimed: earliest virtual deadline first. It is a job's deadline, or a day
# after it was enqueued if it has none within that day, less a day per point of priority. Thus priority decides between
# jobs of similar age, then the deadline, and none starves: only jobs enqueued at most a day later overtake a job, plus
# a day per point of priority that they have more. Both times are rounded, deadlines by up to a quarter of their slack,
# and within equal times sources go one after the other: siblings stay together. The functions are in
# migrations/versions/r0005_planned_order.sql; the index `ix_job_queued` is over the same terms.
PLANNED_ORDER: Final = (
    "thothy_virtual_deadline(priority, deadline, enqueued_at, scheduled_for)",
    "thothy_due(deadline, enqueued_at, scheduled_for)",
    "source_key",
    "id",
)
WAITING: Final = "state IN ('queued', 'dispatched')"
NOT_EXPIRED: Final = "(deadline IS NULL OR deadline > now())"

QUEUED_CHANNEL: Final = "thothy_queued"  # a NOTIFY on it wakes the dispatcher
DEATHS_TO_RUN_ALONE: Final = 2  # a job in flight at that many engine deaths runs only while nothing else does
ENGINE_SILENCE_SECONDS: Final = 60  # an engine session without a heartbeat for that long has ended

# What a reader of a bill adds up. `usage_by_hour` has more columns, and says what each is.
USAGE_SUMS: Final = (
    "attempts", "accepted", "rejected", "lost", "dead", "cancelled", "expired",
    "prompt_tokens", "cached_tokens", "output_tokens", "saved_tokens",
    "resident_seconds", "busy_seconds", "useful_seconds", "review_seconds",
)  # fmt: skip
# An engine without a GPU counts as one device. Sessions of older workers do not say under which name jobs ask for them.
DEVICES: Final = "greatest(session.gpus, 1)"
MODEL_NAME: Final = "coalesce(nullif(session.model_name, ''), session.model, '')"
# An engine with a recent heartbeat is resident until now; any other, until its last heartbeat.
RESIDENT_UNTIL: Final = (
    "CASE WHEN ended_at IS NOT NULL THEN ended_at"
    f" WHEN heartbeat_at > now() - interval '{ENGINE_SILENCE_SECONDS} seconds' THEN now() ELSE heartbeat_at END"
)

FRAGMENTS: Final[dict[str, str]] = {
    "planned_order": ", ".join(PLANNED_ORDER),
    "waiting": WAITING,
    # Each term has a partial index; where most jobs are open, Postgres reads the table instead.
    "open": "((state = 'queued' AND NOT delayed) OR (state = 'queued' AND delayed) OR state = 'dispatched'"
    " OR state = 'running')",
    "not_expired": NOT_EXPIRED,
    # Of the dispatches given. A job that this worker runs already was claimed before, and the answer was lost.
    "claimable": f"((state = 'dispatched' AND NOT cancel_requested AND {NOT_EXPIRED})"
    " OR (state = 'running' AND worker = :worker))",
    "hints": "unnest(CAST(:ids AS uuid[]), CAST(:dispatch_nos AS integer[]))",
    # A filter that is NULL lets everything through.
    "selected_dead": "state = 'dead'"
    " AND finished_at >= coalesce(CAST(:since AS timestamptz), '-infinity')"
    " AND finished_at < coalesce(CAST(:until AS timestamptz), 'infinity')"
    " AND (CAST(:ids AS uuid[]) IS NULL OR id = ANY(CAST(:ids AS uuid[])))"
    " AND (CAST(:kinds AS text[]) IS NULL OR kind = ANY(CAST(:kinds AS text[])))"
    " AND (CAST(:reasons AS text[]) IS NULL OR reason = ANY(CAST(:reasons AS text[])))",
    # Jobs that match a filter, except for their kind and times. Those of one enqueue call have the same `enqueued_at`;
    # follow-ups may have been enqueued in the same instant.
    "selected_jobs": "(CAST(:states AS text[]) IS NULL OR state = ANY(CAST(:states AS text[])))"
    " AND (CAST(:key AS text) IS NULL OR idempotency_key = CAST(:key AS text))"
    " AND (CAST(:key_start AS text) IS NULL OR starts_with(idempotency_key, CAST(:key_start AS text)))"
    " AND (CAST(:source AS text) IS NULL OR starts_with(source_key, CAST(:source AS text)))"
    " AND (CAST(:parent AS uuid) IS NULL OR parent_id = CAST(:parent AS uuid))"
    " AND (CAST(:batch AS uuid) IS NULL OR (enqueued_at, parent_id IS NULL) IN"
    " (SELECT one.enqueued_at, one.parent_id IS NULL FROM job AS one WHERE one.id = CAST(:batch AS uuid)))",
    "without_output": "outcome NOT IN ('succeeded', 'rejected')",
    # Attempts without output whose usage is not recorded.
    "unbilled": "compute_seconds = 0 AND outcome NOT IN ('succeeded', 'rejected')",
    "devices": DEVICES,
    "model_name": MODEL_NAME,
    "resident_until": RESIDENT_UNTIL,
    "usage_sums": ", ".join(USAGE_SUMS),
    "summed_usage": ", ".join(f"sum({name})" for name in USAGE_SUMS),
    # Of `attempt`, left joined with its `session`: what attempts used, in the columns of `usage_by_hour`.
    "attempt_usage": "count(*) AS attempts, count(*) FILTER (WHERE outcome = 'succeeded') AS accepted,"
    " count(*) FILTER (WHERE outcome = 'rejected') AS rejected,"
    " count(*) FILTER (WHERE outcome IN ('lost', 'released')) AS lost,"
    " 0 AS dead, 0 AS cancelled, 0 AS expired,"
    " sum(attempt.prompt_tokens) AS prompt_tokens, sum(attempt.cached_tokens) AS cached_tokens,"
    " sum(attempt.output_tokens) AS output_tokens, sum(attempt.saved_tokens) AS saved_tokens, 0 AS resident_seconds,"
    f" sum(attempt.compute_seconds * {DEVICES}) AS busy_seconds,"
    f" coalesce(sum(attempt.compute_seconds * {DEVICES}) FILTER (WHERE outcome = 'succeeded'), 0) AS useful_seconds,"
    f" sum(attempt.review_seconds * {DEVICES}) AS review_seconds",
    # Of `job`: those that ended without success.
    "job_usage": "0 AS attempts, 0 AS accepted, 0 AS rejected, 0 AS lost, count(*) FILTER (WHERE state = 'dead') AS dead,"
    " count(*) FILTER (WHERE state = 'cancelled') AS cancelled, count(*) FILTER (WHERE state = 'expired') AS expired,"
    " 0 AS prompt_tokens, 0 AS cached_tokens, 0 AS output_tokens, 0 AS saved_tokens, 0 AS resident_seconds,"
    " 0 AS busy_seconds, 0 AS useful_seconds, 0 AS review_seconds",
    # The residency of engines between :since and :until, cut at hours. The join with each hour is small: an engine has
    # few sessions.
    "residency": "SELECT hour, '' AS tenant, '' AS kind, model_name,"
    " sum(extract(epoch FROM least(hour + interval '1 hour', until_at) - greatest(hour, since_at)) * devices)"
    " AS resident_seconds FROM ("
    f"SELECT {MODEL_NAME} AS model_name, {DEVICES} AS devices,"
    " greatest(started_at, CAST(:since AS timestamptz)) AS since_at,"
    f" least({RESIDENT_UNTIL}, CAST(:until AS timestamptz)) AS until_at FROM engine_session AS session"
    ") AS clipped, generate_series(date_trunc('hour', since_at), until_at, interval '1 hour') AS hour"
    " WHERE until_at > since_at AND until_at > hour GROUP BY hour, model_name",
    "add_usage": "ON CONFLICT (hour, tenant, kind, model_name) DO UPDATE SET "
    + ", ".join(f"{name} = usage_by_hour.{name} + excluded.{name}" for name in USAGE_SUMS),
    # Seconds that were `added` to attempts of closed hours; `progress` is locked. Then: the rows of the bill they change.
    "late_usage": "SELECT date_trunc('hour', finished_at) AS hour, tenant, kind, engine_session_id, added,"
    f" (SELECT {MODEL_NAME} FROM engine_session AS session WHERE session.id = engine_session_id) AS model_name,"
    f" (SELECT added * {DEVICES} FROM engine_session AS session WHERE session.id = engine_session_id) AS busy",
    "restate": "INSERT INTO usage_by_hour AS known (hour, tenant, kind, model_name, busy_seconds, closed_seconds, revised_at)"
    " SELECT hour, tenant, kind, coalesce(model_name, ''), sum(coalesce(busy, added)), 0, now() FROM late"
    " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
    " ON CONFLICT (hour, tenant, kind, model_name) DO UPDATE"
    " SET busy_seconds = known.busy_seconds + excluded.busy_seconds, revised_at = now()",
    # Of a job that was `claimed` just now: what its earlier attempts used of its budget, if it has one; and the last of
    # them whose output was rejected, as JSON. Most jobs have no earlier attempt, and neither is looked for.
    "used_before": "CASE WHEN max_compute_seconds IS NOT NULL AND claimed.attempt > budget_after + 1 THEN ("
    "SELECT coalesce(sum(compute_seconds), 0) FROM attempt AS earlier"
    " WHERE earlier.job_id = claimed.id AND earlier.attempt > budget_after) ELSE 0 END AS used_seconds",
    "rejected_before": "CASE WHEN claimed.failures > 0 THEN ("
    "SELECT jsonb_build_object('reason', earlier.reason, 'detail', coalesce(earlier.detail, ''), 'artifact', body)"
    " FROM attempt AS earlier LEFT JOIN artifact ON artifact.job_id = earlier.job_id"
    " AND artifact.attempt = earlier.attempt"
    " WHERE earlier.job_id = claimed.id AND outcome = 'rejected' ORDER BY earlier.attempt DESC LIMIT 1)"
    " END AS previous",
    # A job that may run only later is kept out of the dispatcher's index until then, less this.
    "delay_margin": "interval '1 minute'",
    "engine_silence": f"interval '{ENGINE_SILENCE_SECONDS} seconds'",
    "runs_alone": f"engine_deaths >= {DEATHS_TO_RUN_ALONE}",
    "deaths_to_run_alone": str(DEATHS_TO_RUN_ALONE),
    "wake_dispatcher": f"pg_notify('{QUEUED_CHANNEL}', '')",
}
