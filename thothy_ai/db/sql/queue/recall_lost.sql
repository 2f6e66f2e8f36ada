-- Queues again what was dispatched to engines that are gone: no session of that name was heard of recently, or no worker
-- has reached it within `worker_seconds`. An engine that soon starts again under its name keeps what waits for it.
-- Returns the dispatches: their messages are stale from now on.
-- An engine to which no worker has ever come, and which has run nothing of what has waited for it for that long, has none:
-- it gets no jobs until one comes.
WITH unstaffed AS (
    UPDATE engine_session
    SET worker_heartbeat_at = started_at
    WHERE worker_heartbeat_at IS NULL AND engine_name <> '' AND state = 'ready' AND ended_at IS NULL
        AND coalesce(ready_at, started_at) < now() - make_interval(secs => :worker_seconds)
        AND EXISTS (
            SELECT
            FROM job
            WHERE job.state = 'dispatched' AND job.engine_name = engine_session.engine_name
                AND dispatched_at < now() - make_interval(secs => :worker_seconds)
        )
        AND NOT EXISTS (SELECT FROM job WHERE job.state = 'running' AND job.engine_name = engine_session.engine_name)
    RETURNING engine_name
), lost AS (
    SELECT id
    FROM job
    WHERE state = 'dispatched' AND engine_name <> '' AND (
        engine_name = ANY(ARRAY(SELECT engine_name FROM unstaffed))
        OR engine_name <> ALL(ARRAY(
            SELECT engine_name
            FROM engine_session
            WHERE {heard_of} AND ({staffed}) IS NOT FALSE
        ))
    )
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), recalled AS (
    UPDATE job
    SET state = 'queued'
    WHERE id = ANY(ARRAY(SELECT id FROM lost))
    RETURNING id, dispatch_no, engine_name
), noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, 'republished', 'engine ' || engine_name || ' or its worker is gone' FROM recalled
)
SELECT engine_name, count(*) AS jobs, array_agg(id) AS ids, array_agg(dispatch_no) AS dispatch_nos, {wake_dispatcher}
FROM recalled
GROUP BY engine_name
