-- Takes back the jobs of a worker that has ended, without waiting for its leases: the supervisor has seen its end. The
-- names of that process in the record begin with `worker`.
-- As in `queue/reap_lost`, it is no failure of the jobs. The first {free_machine_losses} times it costs a job nothing;
-- each further time counts as an engine death, since a job that takes workers down must come to an end.
-- What was dispatched to `engine` (NULL: to any) is queued again: the worker may have taken the messages. Those that
-- are still in Redis are fenced off by their dispatch numbers.
WITH orphaned AS (
    SELECT id, worker AS lost_worker, started_at AS since, CAST({lost_too_often} AS integer) AS deaths
    FROM job
    WHERE state = 'running' AND starts_with(worker, :worker)
    ORDER BY id
    FOR UPDATE OF job
), judged AS (
    SELECT orphaned.*, deaths > 0 AND engine_deaths >= {deaths_to_run_alone} AS kills FROM orphaned JOIN job USING (id)
), released AS (
    UPDATE job
    SET state = CASE WHEN cancel_requested THEN 'cancelled' WHEN kills THEN {given_up} ELSE 'queued' END,
        review = CASE WHEN kills AND NOT cancel_requested THEN {needs_of_given_up} END,
        finished_at = CASE WHEN cancel_requested OR kills THEN now() END,
        not_before = now(), engine_deaths = engine_deaths + deaths, worker = NULL, lease_until = NULL,
        reason = CASE WHEN cancel_requested THEN NULL WHEN kills THEN 'engine_killer' ELSE 'worker_lost' END,
        detail = CASE WHEN NOT cancel_requested THEN 'worker ' || lost_worker || ' ended' END
    FROM judged
    WHERE job.id = judged.id
    RETURNING job.id, attempt, tenant, kind, state, engine_session_id, adapter, lost_worker, since
), tried AS (
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, adapter, started_at, outcome, reason)
    SELECT id, attempt, tenant, kind, lost_worker, engine_session_id, adapter, since, 'lost', 'worker_lost'
    FROM released
), noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, {event_of_lost}, 'worker ' || lost_worker || ' ended' FROM released
), recalled AS (
    UPDATE job
    SET state = 'queued'
    WHERE state = 'dispatched' AND (engine_name = CAST(:engine AS text) OR CAST(:engine AS text) IS NULL)
    RETURNING id
), notified AS (
    SELECT {notify_waiters}
    FROM (
        SELECT id, (row_number() OVER () - 1) / {ids_per_notification} AS part FROM released WHERE state <> 'queued'
    ) AS parts
    GROUP BY part
)
SELECT count(*) AS jobs, {wake_dispatcher}
FROM released
WHERE (SELECT count(*) FROM notified) + (SELECT count(*) FROM recalled) >= 0 -- what nothing reads is not run
