-- Whether a job is open and due, the first and the last finish that no drain has, and whether usage is still unknown.
-- Every part reads a few entries of an index, however long the queue is. A job that waits for its time keeps no drain open;
-- one that waits for its next attempt does. Of queued jobs, some are looked at: before many are due, the first ones are
-- dispatched.
SELECT
    EXISTS (SELECT FROM job WHERE state = 'running')
    OR EXISTS (SELECT FROM job WHERE state = 'dispatched')
    OR EXISTS (
        SELECT FROM (
            SELECT attempt, not_before FROM job WHERE state = 'queued' AND NOT delayed LIMIT 1000
        ) AS looked_at
        WHERE attempt > 0 OR not_before <= now()
    ) AS is_open,
    recorded AS since,
    (SELECT min(finished_at) FROM job WHERE finished_at > recorded) AS first_finish,
    (SELECT max(finished_at) FROM job WHERE finished_at > recorded) AS last_finish,
    EXISTS (
        SELECT FROM engine_session
        WHERE settled_at IS NULL AND (ended_at IS NOT NULL OR heartbeat_at < now() - interval '20 seconds')
    ) AS is_unsettled,
    now() AS now
FROM (
    SELECT coalesce((SELECT max(ended_at) FROM drain), now() - interval '1 day') AS recorded
) AS last
