-- Claims dispatched jobs: the attempt number goes up, which fences off the results of earlier attempts. A job that is
-- not returned was taken, cancelled, expired or dispatched again: its message is stale. A job returned without an
-- attempt waits: one in quarantine for `claim_quarantined`, any other for the end of a job that runs alone on this
-- engine (worker/quarantine.py). If the answer to a claim was lost, the job is claimed again, and the attempt that
-- never ran is recorded as released. A job that names anything but the session's model runs with the adapter of that
-- name.
WITH given AS (
    SELECT DISTINCT id, dispatch_no  -- a message may have been delivered twice
    FROM {hints} AS hint (id, dispatch_no)
), free AS (
    SELECT job.id, dispatch_no, engine_deaths, enqueued_at, scheduled_for, state AS was, attempt AS number,
        started_at AS since, engine_session_id AS meant_for, adapter AS meant_with,
        greatest(enqueued_at, not_before) AS due_at
    FROM job JOIN given USING (id, dispatch_no)
    WHERE {claimable}
    ORDER BY job.id
    FOR UPDATE OF job
), claimed AS (
    UPDATE job
    SET state = 'running', attempt = attempt + 1, worker = :worker, started_at = now(),
        engine_session_id = CAST(:engine_session_id AS uuid), adapter = {adapter},
        lease_until = now() + make_interval(secs => :lease_seconds), reason = NULL, detail = NULL
    FROM free
    WHERE job.id = free.id AND free.engine_deaths = 0
        AND NOT EXISTS (SELECT FROM job AS alone WHERE state = 'running' AND {runs_alone} AND {on_this_engine})
    RETURNING job.id, attempt, tenant, kind, worker, failures, max_attempts, max_compute_seconds,
        budget_after, priority, deadline,
        source_key, version, adapter
), never_ran AS (
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, adapter, started_at, outcome, reason)
    SELECT id, number, tenant, kind, worker, meant_for, meant_with, since, 'released', 'answer_lost'
    FROM free JOIN claimed USING (id)
    WHERE was = 'running'
)
SELECT free.id, free.dispatch_no, attempt, tenant, kind, failures, max_attempts, max_compute_seconds,
    free.engine_deaths, priority, deadline, source_key, {whole_request}, {used_before}, {rejected_before},
    claimed.attempt - budget_after AS tries, extract(epoch FROM now() - due_at)::float8 AS waited_seconds, adapter
FROM free LEFT JOIN claimed USING (id) LEFT JOIN job_request ON job_id = claimed.id
ORDER BY {planned_order}
