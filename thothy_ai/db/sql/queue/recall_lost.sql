-- Queues again what was dispatched to engines that are gone: no session of that name was heard of recently, or no
-- worker has reached it within `worker_seconds`. An engine that soon starts again under its name keeps what waits for
-- it, while it loads and for as long after that. Returns the dispatches: their messages are stale from now on.
WITH lost AS (
    SELECT id
    FROM job
    WHERE state = 'dispatched' AND engine_name IS NOT NULL AND engine_name <> ALL(ARRAY(
        SELECT engine_name
        FROM engine_session
        WHERE {heard_of}
            AND coalesce(worker_heartbeat_at, ready_at, now()) > now() - make_interval(secs => :worker_seconds)
    ))
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
