-- One job as a watcher sees it, whether an engine serves the model that it names, and whether the queue is paused.
SELECT id, kind, state, attempt, failures, max_attempts, cancel_requested, not_before, not_before > now() AS later,
    delayed, worker, reason, detail, enqueued_at, started_at, finished_at, deadline, paused, note, now() AS at,
    CASE WHEN model IS NULL OR EXISTS (
        SELECT
        FROM engine_session
        WHERE {heard_of}
            AND model_name = coalesce((SELECT model_name FROM model_alias WHERE alias = job.model), job.model)
    ) THEN NULL ELSE model END AS unserved_model
FROM job LEFT JOIN queue_control ON name = 'default'
WHERE id = :id
