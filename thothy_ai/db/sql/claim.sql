-- Takes dispatched jobs to run them: the attempt's number goes up and fences the results of earlier ones.
-- A job that is not in the answer was taken, cancelled, expired or dispatched anew: its message is stale. One without
-- an attempt waits: a suspect for `claim_suspect`, any other for the end of a job that runs alone (worker/suspects.py).
-- A claim whose answer never came is claimed anew; the attempt that nobody made is recorded as released.
WITH given AS (
    SELECT DISTINCT id, dispatch_no  -- a message may have been delivered twice
    FROM unnest(CAST(:ids AS uuid[]), CAST(:dispatch_nos AS integer[])) AS hint (id, dispatch_no)
), free AS (
    SELECT job.id, dispatch_no, engine_deaths, enqueued_at, state AS was, attempt AS number, started_at AS since,
        engine_session_id AS meant_for
    FROM job JOIN given USING (id, dispatch_no)
    WHERE (state = 'dispatched' AND NOT cancel_requested AND (deadline IS NULL OR deadline > now()))
        OR (state = 'running' AND worker = :worker)  -- claimed before, but the answer never came
    ORDER BY job.id
    FOR UPDATE OF job
), claimed AS (
    UPDATE job
    SET state = 'running', attempt = attempt + 1, worker = :worker, started_at = now(),
        engine_session_id = CAST(:engine_session_id AS uuid),
        lease_until = now() + make_interval(secs => :lease_seconds), reason = NULL, detail = NULL
    FROM free
    WHERE job.id = free.id AND free.engine_deaths = 0
        AND NOT EXISTS (SELECT FROM job AS lone WHERE lone.state = 'running' AND lone.engine_deaths >= 2)
    RETURNING job.*
), unheard AS (
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, started_at, outcome, reason)
    SELECT id, number, tenant, kind, worker, meant_for, since, 'released', 'answer_lost'
    FROM free JOIN claimed USING (id)
    WHERE was = 'running'
)
SELECT free.id, free.dispatch_no, attempt, tenant, kind, failures, max_attempts, free.engine_deaths, priority, deadline,
    source_key, request
FROM free LEFT JOIN claimed USING (id) LEFT JOIN job_request ON job_id = claimed.id
ORDER BY priority DESC, deadline ASC NULLS LAST, date_bin('10 minutes', free.enqueued_at, 'epoch'), source_key, free.id
