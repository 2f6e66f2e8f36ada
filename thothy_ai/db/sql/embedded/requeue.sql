-- Queues again what no process works on any more: the embedded stack's own have ended, and it alone has this database.
-- No failure is charged. `charged`: the jobs that the engines of a stack that was killed had begun with, which counts
-- as the death of an engine: a job that kills the stack again and again must come to an end. Jobs that were claimed
-- before the machine started, `uptime` seconds ago (NULL: none was), were lost with it, as in `queue/reap_lost`: the
-- first {free_machine_losses} times nothing is charged, each further time the death of an engine. Messages that are
-- still in Redis are stale: a job gets a new number with its next dispatch.
WITH running AS (
    SELECT id, worker AS stopped_worker, id = ANY(CAST(:charged AS uuid[])) AS begun, {lost_too_often} AS suspect,
        coalesce(started_at <= now() - make_interval(secs => CAST(:uptime AS float8)), false) AS with_machine
    FROM job
    WHERE state = 'running'
    FOR UPDATE OF job
), counted AS (
    SELECT running.*, CAST(begun OR with_machine AND suspect AS integer) AS deaths FROM running
), judged AS (
    SELECT counted.id AS running_id, stopped_worker, deaths,
        deaths > 0 AND engine_deaths >= {deaths_to_run_alone} AS kills,
        CASE WHEN begun OR with_machine THEN 'lost' ELSE 'released' END AS outcome,
        CASE WHEN with_machine THEN 'machine_lost' WHEN begun THEN 'engine_lost' ELSE 'shutdown' END AS cause
    FROM counted JOIN job USING (id)
), stopped AS (
    UPDATE job
    SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN kills THEN {given_up} ELSE 'queued' END,
        review = CASE WHEN kills AND NOT cancel_requested THEN {needs_of_given_up} END,
        finished_at = CASE WHEN cancel_requested OR kills THEN now() END,
        not_before = now(), worker = NULL, lease_until = NULL, engine_deaths = engine_deaths + deaths,
        reason = CASE WHEN cancel_requested THEN NULL WHEN kills THEN 'engine_killer' ELSE cause END, detail = NULL
    FROM judged
    WHERE job.id = running_id
    RETURNING job.id, attempt, tenant, kind, state, stopped_worker, engine_session_id, adapter, started_at, outcome,
        CASE WHEN kills THEN 'engine_killer' ELSE cause END AS why
), tried AS (
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, adapter, started_at, outcome, reason)
    SELECT id, attempt, tenant, kind, stopped_worker, engine_session_id, adapter, started_at, outcome, why
    FROM stopped
), noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, CASE state WHEN 'queued' THEN outcome WHEN 'succeeded' THEN 'kept' ELSE state END, why
    FROM stopped
), recalled AS (
    UPDATE job SET state = 'queued' WHERE state = 'dispatched'
)
SELECT count(*) AS jobs FROM stopped
