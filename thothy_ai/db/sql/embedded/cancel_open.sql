-- Cancels every job that waits. None runs: the stack has only begun to start.
WITH cancelled AS (
    UPDATE job
    SET state = 'cancelled', finished_at = now(), reason = NULL, detail = NULL
    WHERE {waiting}
    RETURNING id
), noted AS (
    INSERT INTO job_event (job_id, event, detail) SELECT id, 'cancelled', 'left by an earlier run' FROM cancelled
)
SELECT count(*) AS jobs FROM cancelled
