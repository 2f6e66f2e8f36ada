-- One job's state.
SELECT id, tenant, kind, state, priority, deadline, attempt, failures, reason, detail, cancel_requested,
       enqueued_at, started_at, finished_at
FROM job
WHERE id = :id
