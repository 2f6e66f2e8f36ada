-- A job's row, complete.
SELECT id, tenant, kind, state, priority, deadline, not_before, scheduled_for, delayed, source_key, idempotency_key,
    request_digest, parent_id, batch_id, attempt, failures, max_attempts, engine_deaths, max_compute_seconds,
    budget_after, dispatch_no, dispatched_at, worker, engine_session_id, lease_until, started_at, finished_at,
    cancel_requested, reason, detail, enqueued_at, model, engine_name, review, version
FROM job
WHERE id = :job_id
