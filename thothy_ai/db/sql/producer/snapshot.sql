-- One job's state, if it is the tenant's.
SELECT id, tenant, kind, state, priority, deadline, attempt, failures, reason, detail, cancel_requested,
       enqueued_at, started_at, finished_at
FROM job
WHERE id = :id AND tenant = :tenant
