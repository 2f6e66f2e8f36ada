-- Ends a waiting job at once; asks the worker of a running one to stop. No row: the job is unknown or has ended.
WITH cancelled AS (
    UPDATE job
    SET cancel_requested = true,
        state = CASE state WHEN 'running' THEN state ELSE 'cancelled' END,
        finished_at = CASE state WHEN 'running' THEN finished_at ELSE now() END,
        reason = NULL, detail = NULL  -- of an earlier attempt
    WHERE id = :id AND state IN ('queued', 'dispatched', 'running')
    RETURNING id, state
),
noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, 'cancelled', 'before it ran' FROM cancelled WHERE state = 'cancelled'
)
SELECT state FROM cancelled
