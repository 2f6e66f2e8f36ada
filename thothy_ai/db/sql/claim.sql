-- Takes dispatched jobs to run them: the attempt's number goes up and fences the results of earlier ones.
-- A job that is not in the answer was taken, cancelled, expired or dispatched anew: its message is stale.
WITH given AS (
    SELECT id, dispatch_no
    FROM unnest(CAST(:ids AS uuid[]), CAST(:dispatch_nos AS integer[])) AS hint (id, dispatch_no)
), free AS (
    SELECT job.id
    FROM job JOIN given USING (id, dispatch_no)
    WHERE (state = 'dispatched' AND NOT cancel_requested AND (deadline IS NULL OR deadline > now()))
        OR (state = 'running' AND worker = :worker)  -- claimed before, but the answer never came
    ORDER BY job.id
    FOR UPDATE OF job
), claimed AS (
    UPDATE job
    SET state = 'running', attempt = attempt + 1, worker = :worker, started_at = now(),
        lease_until = now() + make_interval(secs => :lease_seconds), reason = NULL, detail = NULL
    FROM free
    WHERE job.id = free.id
    RETURNING job.*
)
SELECT id, dispatch_no, attempt, tenant, kind, failures, max_attempts, engine_deaths, priority, deadline, source_key, request
FROM claimed LEFT JOIN job_request ON job_id = id
ORDER BY priority DESC, deadline ASC NULLS LAST, date_bin('10 minutes', enqueued_at, 'epoch'), source_key, id
