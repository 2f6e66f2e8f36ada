-- One job as a watcher sees it, and whether the queue is paused.
SELECT id, kind, state, attempt, failures, max_attempts, cancel_requested, not_before, not_before > now() AS later,
    delayed, worker, reason, detail, enqueued_at, started_at, finished_at, deadline, paused, note, now() AS at
FROM job LEFT JOIN queue_control ON name = 'default'
WHERE id = :id
