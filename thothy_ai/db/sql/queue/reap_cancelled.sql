-- Ends jobs that do not run and whose cancellation was requested, at most `limit` at once.
WITH unwanted AS (
    SELECT id
    FROM job
    WHERE {waiting} AND cancel_requested
    ORDER BY id
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
), cancelled AS (
    UPDATE job
    SET state = 'cancelled', finished_at = now(), reason = NULL, detail = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM unwanted))
    RETURNING id, kind, state
), noted AS (
    INSERT INTO job_event (job_id, event) SELECT id, 'cancelled' FROM cancelled
), notified AS (
    SELECT {notify_waiters}
    FROM (SELECT id, (row_number() OVER () - 1) / {ids_per_notification} AS part FROM cancelled) AS parts
    GROUP BY part
)
SELECT id, kind, state FROM cancelled WHERE (SELECT count(*) FROM notified) >= 0  -- what nothing reads is not run
