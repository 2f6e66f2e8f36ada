-- Claims the first of these quarantined jobs, in planned order, unless one runs anywhere (worker/quarantine.py). The
-- caller holds `quarantine_lock`. Returns the jobs that still wait, and the claimed one with its attempt; others are
-- stale.
WITH given AS (
    SELECT DISTINCT id, dispatch_no  -- a message may have been delivered twice
    FROM {hints} AS hint (id, dispatch_no)
), free AS (
    SELECT
        job.id, dispatch_no, engine_deaths, state AS was, attempt AS number, started_at AS since,
        engine_session_id AS meant_for,
        row_number() OVER (
            ORDER BY state DESC, {planned_order}  -- a job whose claim was lost runs already, and comes first
        ) AS place
    FROM job JOIN given USING (id, dispatch_no)
    WHERE {claimable}
), claimed AS (
    UPDATE job
    SET state = 'running', attempt = attempt + 1, worker = :worker, started_at = now(),
        engine_session_id = CAST(:engine_session_id AS uuid),
        lease_until = now() + make_interval(secs => :lease_seconds), reason = NULL, detail = NULL
    FROM free
    WHERE job.id = free.id AND job.dispatch_no = free.dispatch_no AND place = 1
        AND (state = 'dispatched' AND NOT cancel_requested OR state = 'running' AND worker = :worker)
        AND NOT EXISTS (
            SELECT FROM job AS other WHERE other.state = 'running' AND other.engine_deaths > 0 AND other.id <> free.id
        )
    RETURNING job.*
), never_ran AS (
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, started_at, outcome, reason)
    SELECT id, number, tenant, kind, worker, meant_for, since, 'released', 'answer_lost'
    FROM free JOIN claimed USING (id)
    WHERE was = 'running'
)
SELECT free.id, free.dispatch_no, attempt, tenant, kind, failures, max_attempts, max_compute_seconds,
    free.engine_deaths, priority, deadline, source_key, {whole_request}, {used_before}, {rejected_before},
    claimed.attempt - budget_after AS tries
FROM free LEFT JOIN claimed USING (id) LEFT JOIN job_request ON job_id = claimed.id
