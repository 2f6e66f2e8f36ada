-- Queues again what was dispatched to engines that are gone: no session of that name was heard of recently, or no worker
-- has reached it within `worker_seconds`. An engine that soon starts again under its name keeps what waits for it.
-- Messages in its lists are stale from now on.
WITH lost AS (
    SELECT id
    FROM job
    WHERE state = 'dispatched' AND engine_name <> '' AND engine_name <> ALL(ARRAY(
        SELECT engine_name
        FROM engine_session
        WHERE {heard_of} AND ({staffed}) IS NOT FALSE
    ))
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), recalled AS (
    UPDATE job
    SET state = 'queued'
    WHERE id = ANY(ARRAY(SELECT id FROM lost))
    RETURNING id, engine_name
), noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, 'republished', 'engine ' || engine_name || ' or its worker is gone' FROM recalled
)
SELECT engine_name, count(*) AS jobs, {wake_dispatcher}
FROM recalled
GROUP BY engine_name
