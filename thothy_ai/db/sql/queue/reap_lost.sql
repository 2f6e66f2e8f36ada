-- Takes back the jobs of engines that are gone with their workers, without waiting for the leases: the session that a
-- job was claimed for has ended or is silent, and its worker has sent no heartbeat for `worker_seconds`. A worker that
-- lives finishes its jobs itself, and knows better what its engine died of. It is no failure of the job's. The first
-- {free_machine_losses} times it is nobody's, since machines lose power; each further one counts as an engine death,
-- since a job that takes machines down must come to an end.
WITH lost AS (
    SELECT job.id, worker AS lost_worker, job.started_at AS since,
        CAST({lost_too_often} AS integer) AS deaths
    FROM job
    WHERE job.state = 'running'
        AND lease_until < now() + make_interval(secs => CAST(:lease_seconds AS float8) - :worker_seconds)
        AND EXISTS (
            SELECT
            FROM engine_session
            WHERE engine_session.id = job.engine_session_id
                AND (ended_at IS NOT NULL OR heartbeat_at < now() - {engine_silence})
        )
    ORDER BY job.id
    FOR UPDATE SKIP LOCKED
), judged AS (
    SELECT lost.*, deaths > 0 AND engine_deaths >= {deaths_to_run_alone} AS kills FROM lost JOIN job USING (id)
), reaped AS (
    UPDATE job
    SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN kills THEN {given_up} ELSE 'queued' END,
        review = CASE WHEN kills AND NOT cancel_requested THEN {needs_of_given_up} END,
        finished_at = CASE WHEN cancel_requested OR kills THEN now() END,
        not_before = now(), engine_deaths = engine_deaths + deaths, worker = NULL, lease_until = NULL,
        reason = CASE WHEN kills THEN 'engine_killer' ELSE 'machine_lost' END,
        detail = 'engine ' || coalesce(engine_name, '') || ' and worker ' || lost_worker || ' fell silent'
    FROM judged
    WHERE job.id = judged.id
    RETURNING job.id, attempt, tenant, kind, state, engine_session_id, adapter, lost_worker, since, reason, detail
), tried AS (
    INSERT INTO attempt (
        job_id, attempt, tenant, kind, worker, engine_session_id, adapter, started_at, outcome, reason, detail
    )
    SELECT id, attempt, tenant, kind, lost_worker, engine_session_id, adapter, since, 'lost', 'machine_lost', detail
    FROM reaped
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
