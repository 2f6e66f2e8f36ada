-- One job as a watcher sees it, the model that it names (`alias_of`: by an alias) if no engine serves it, and whether the
-- queue is paused.
SELECT id, kind, state, attempt, failures, max_attempts, cancel_requested, not_before, not_before > now() AS later,
    delayed, worker, reason, detail, enqueued_at, started_at, finished_at, deadline, paused, note, now() AS at,
    CASE WHEN model IS NULL OR EXISTS (
        SELECT
        FROM engine_session
        WHERE {heard_of}
            AND engine_session.model_name = coalesce(model_alias.model_name, job.model)
    ) THEN NULL ELSE model END AS unserved_model, model_name AS alias_of
FROM job LEFT JOIN queue_control ON name = 'default' LEFT JOIN model_alias ON alias = job.model
WHERE id = :id
