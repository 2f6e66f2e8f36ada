-- Ends jobs that are to be cancelled and that nobody runs.
WITH unwanted AS (
    SELECT id
    FROM job
    WHERE state IN ('queued', 'dispatched') AND cancel_requested
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), cancelled AS (
    UPDATE job
    SET state = 'cancelled', finished_at = now(), reason = NULL, detail = NULL
    FROM unwanted
    WHERE job.id = unwanted.id
    RETURNING job.id, kind, state
), noted AS (
    INSERT INTO job_event (job_id, event) SELECT id, 'cancelled' FROM cancelled
)
SELECT id, kind, state FROM cancelled
