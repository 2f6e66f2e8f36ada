-- Ends jobs that nobody has claimed and whose deadline has passed.
WITH late AS (
    SELECT id
    FROM job
    WHERE state IN ('queued', 'dispatched') AND deadline <= now()
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), expired AS (
    UPDATE job
    SET state = 'expired', finished_at = now(), reason = 'deadline', detail = NULL
    FROM late
    WHERE job.id = late.id
    RETURNING job.id, kind, state
), noted AS (
    INSERT INTO job_event (job_id, event) SELECT id, 'expired' FROM expired
)
SELECT id, kind, state FROM expired
