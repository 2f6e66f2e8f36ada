-- Takes back jobs whose worker stopped sending heartbeats. An expired lease counts as a failure: a job that kills its
-- worker must come to an end.
WITH silent AS (
    SELECT id, worker AS lost_worker, started_at AS since, failures + 1 AS failed
    FROM job
    WHERE state = 'running' AND lease_until < now()
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), reaped AS (
    UPDATE job
    SET state = CASE
            WHEN cancel_requested THEN 'cancelled' WHEN failed >= max_attempts THEN {given_up} ELSE 'queued'
        END,
        review = CASE WHEN failed >= max_attempts AND NOT cancel_requested THEN {needs_of_given_up} END,
        finished_at = CASE WHEN cancel_requested OR failed >= max_attempts THEN now() END,
        not_before = now() + make_interval(
            secs => random()
                * least(CAST(:retry_cap_seconds AS float8), :retry_base_seconds * power(2, least(failures, 30)))
        ),
        failures = failed, worker = NULL, lease_until = NULL, reason = 'lease_lost',
        detail = 'worker ' || lost_worker || ' fell silent'
    FROM silent
    WHERE job.id = silent.id
    RETURNING job.id, attempt, tenant, kind, state, engine_session_id, adapter, lost_worker, since, reason, detail
), tried AS (
    INSERT INTO attempt (
        job_id, attempt, tenant, kind, worker, engine_session_id, adapter, started_at, outcome, reason, detail
    )
    SELECT id, attempt, tenant, kind, lost_worker, engine_session_id, adapter, since, 'lost', reason, detail FROM reaped
), noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, {event_of_lost}, concat_ws(': ', reason, detail) FROM reaped
), notified AS (
    SELECT {notify_waiters}
    FROM (
        SELECT id, (row_number() OVER () - 1) / {ids_per_notification} AS part FROM reaped WHERE state <> 'queued'
    ) AS parts
    GROUP BY part
)
SELECT id, kind, state, CASE WHEN state = 'queued' THEN {wake_dispatcher} END
FROM reaped
WHERE (SELECT count(*) FROM notified) >= 0  -- what nothing reads is not run
