-- Queues again what no process works on any more: the embedded stack's own have ended, and it alone has this database.
-- No failure is charged. `charged`: the jobs that the engines of a stack that was killed had begun with, which counts as
-- the death of an engine: a job that kills the stack again and again must come to an end. Messages that are still in
-- Redis are stale: a job gets a new number with its next dispatch.
WITH stopped AS (
    UPDATE job
    SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN kills THEN 'dead' ELSE 'queued' END,
        finished_at = CASE WHEN cancel_requested OR kills THEN now() END,
        not_before = now(), worker = NULL, lease_until = NULL, engine_deaths = engine_deaths + deaths,
        reason = CASE WHEN cancel_requested THEN NULL WHEN kills THEN 'engine_killer' ELSE 'shutdown' END, detail = NULL
    FROM (
        SELECT id AS running_id, worker AS stopped_worker,
            CAST(id = ANY(CAST(:charged AS uuid[])) AS integer) AS deaths,
            id = ANY(CAST(:charged AS uuid[])) AND engine_deaths >= {deaths_to_run_alone} AS kills
        FROM job
        WHERE state = 'running'
        FOR UPDATE
    ) AS running
    WHERE job.id = running_id
    RETURNING job.id, attempt, tenant, kind, state, stopped_worker, engine_session_id, started_at
), tried AS (
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, started_at, outcome, reason)
    SELECT id, attempt, tenant, kind, stopped_worker, engine_session_id, started_at, 'released', 'shutdown'
    FROM stopped
), noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, CASE state WHEN 'queued' THEN 'released' ELSE state END, 'shutdown'
    FROM stopped
), recalled AS (
    UPDATE job SET state = 'queued' WHERE state = 'dispatched'
)
SELECT count(*) AS jobs FROM stopped
