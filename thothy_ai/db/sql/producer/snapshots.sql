-- The state of several jobs, those that are the tenant's.
SELECT id, tenant, kind, state, priority, deadline, attempt, failures, reason,
    CASE WHEN review = 'rejected' THEN (
        SELECT concat_ws(': ', decided_by, note) FROM decision WHERE job_id = job.id ORDER BY decided_at DESC LIMIT 1
    ) ELSE detail END AS detail,
    cancel_requested, enqueued_at, started_at, finished_at, review
FROM job
WHERE id = ANY (CAST(:ids AS uuid[])) AND tenant = :tenant
