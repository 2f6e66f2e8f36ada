-- Ends unclaimed jobs whose deadline has passed, at most `limit` at once: a whole night's jobs may be late.
WITH late AS (
    SELECT id
    FROM job
    WHERE {waiting} AND deadline <= now()
    ORDER BY deadline
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
), expired AS (
    UPDATE job
    SET state = 'expired', finished_at = now(), reason = 'deadline', detail = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM late))
    RETURNING id, kind, state
), noted AS (
    INSERT INTO job_event (job_id, event) SELECT id, 'expired' FROM expired
), notified AS (
    SELECT {notify_waiters}
    FROM (SELECT id, (row_number() OVER () - 1) / {ids_per_notification} AS part FROM expired) AS parts
    GROUP BY part
)
SELECT id, kind, state FROM expired WHERE (SELECT count(*) FROM notified) >= 0  -- what nothing reads is not run
