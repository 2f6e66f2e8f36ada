-- Cancels waiting jobs of a tenant, or of all if it is NULL, at once; asks the workers of running ones to stop. Jobs
-- that are unknown or have ended are not returned. Rows are locked in the order of their ids, so that two callers with
-- the same jobs cannot deadlock.
WITH wanted AS (
    SELECT id
    FROM job
    WHERE id = ANY(CAST(:ids AS uuid[])) AND state IN ('queued', 'dispatched', 'running') AND {of_tenant}
    ORDER BY id
    FOR UPDATE
), cancelled AS (
    UPDATE job
    SET cancel_requested = true,
        state = CASE state WHEN 'running' THEN state ELSE 'cancelled' END,
        finished_at = CASE state WHEN 'running' THEN finished_at ELSE now() END,
        reason = NULL, detail = NULL  -- of an earlier attempt
    FROM wanted
    WHERE job.id = wanted.id
    RETURNING job.id, state
),
noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, 'cancelled', 'before it ran' FROM cancelled WHERE state = 'cancelled'
), notified AS (
    SELECT {notify_waiters}
    FROM (
        SELECT id, (row_number() OVER () - 1) / {ids_per_notification} AS part FROM cancelled WHERE state = 'cancelled'
    ) AS parts
    GROUP BY part
)
SELECT id, state FROM cancelled WHERE (SELECT count(*) FROM notified) >= 0  -- what nothing reads is not run
