-- The state of several jobs, those that are the tenant's.
SELECT id, tenant, kind, state, priority, deadline, attempt, failures, reason, detail, cancel_requested,
       enqueued_at, started_at, finished_at
FROM job
WHERE id = ANY (CAST(:ids AS uuid[])) AND tenant = :tenant
