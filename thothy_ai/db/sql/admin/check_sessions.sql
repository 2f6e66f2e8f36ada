-- What each engine session was busy for, and what its attempts are billed for: in closed hours, and since then.
WITH recent AS (
    SELECT engine_session_id AS id, sum(compute_seconds) AS seconds
    FROM attempt
    WHERE finished_at >= (SELECT closed_until FROM usage_progress WHERE name = 'default')
    GROUP BY 1
)
SELECT id, {model_name} AS model_name, engine_name, started_at, busy_seconds,
    billed_seconds + coalesce(recent.seconds, 0) AS billed_seconds, settled_at IS NOT NULL AS settled
FROM engine_session AS session LEFT JOIN recent USING (id)
WHERE heartbeat_at >= :since AND started_at < :until
ORDER BY started_at
