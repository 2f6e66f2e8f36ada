-- Queues again what no process works on any more: the embedded stack's own have ended, and it alone has this database.
-- No failure is charged. `charged`: the jobs that the engines of a stack that was killed had begun with, which counts as
-- the death of an engine: a job that kills the stack again and again must come to an end. Those that were claimed before
-- the machine started, `uptime` seconds ago (NULL: since), were lost with it, as in `queue/reap_lost`: the first
-- {free_machine_losses} times nothing is charged, each further time an engine's death. Messages that are still in
-- Redis are stale: a job gets a new number with its next dispatch.
WITH running AS (
    SELECT id AS running_id, worker AS stopped_worker,
        coalesce(started_at <= now() - make_interval(secs => CAST(:uptime AS float8)), false) AS machine_lost, (
            SELECT count(*)
            FROM attempt
            WHERE attempt.job_id = job.id AND attempt.attempt > budget_after AND attempt.reason = 'machine_lost'
        ) AS losses
    FROM job
    WHERE state = 'running'
    FOR UPDATE OF job
), charges AS (
    SELECT running_id, stopped_worker, CASE WHEN machine_lost THEN 'machine_lost' ELSE 'shutdown' END AS why,
        running_id = ANY(CAST(:charged AS uuid[])) OR (machine_lost AND losses >= {free_machine_losses}) AS is_charged
    FROM running
), judged AS (
    SELECT charges.*, is_charged AND engine_deaths >= {deaths_to_run_alone} AS kills
    FROM charges JOIN job ON job.id = running_id
), stopped AS (
    UPDATE job
    SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN kills THEN 'dead' ELSE 'queued' END,
        finished_at = CASE WHEN cancel_requested OR kills THEN now() END,
        not_before = now(), worker = NULL, lease_until = NULL,
        engine_deaths = engine_deaths + CAST(is_charged AS integer),
        reason = CASE WHEN cancel_requested THEN NULL WHEN kills THEN 'engine_killer' ELSE why END, detail = NULL
    FROM judged
    WHERE job.id = running_id
    RETURNING job.id, attempt, tenant, kind, state, stopped_worker, engine_session_id, started_at, why
), tried AS (
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, started_at, outcome, reason)
    SELECT id, attempt, tenant, kind, stopped_worker, engine_session_id, started_at,
        CASE why WHEN 'shutdown' THEN 'released' ELSE 'lost' END, why
    FROM stopped
), noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, CASE WHEN state <> 'queued' THEN state WHEN why = 'shutdown' THEN 'released' ELSE 'lost' END, why
    FROM stopped
), recalled AS (
    UPDATE job SET state = 'queued' WHERE state = 'dispatched'
)
SELECT count(*) AS jobs FROM stopped
