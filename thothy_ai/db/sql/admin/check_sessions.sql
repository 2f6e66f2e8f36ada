-- What each engine session was busy for, and what of it is accounted for: by requests past the queue, and by the
-- attempts that are billed, in closed hours and since then.
WITH recent AS (
    {recent_usage}
)
SELECT id, {model_name} AS model_name, engine_name, started_at, busy_seconds, direct_seconds, interactive_seconds,
    billed_seconds + coalesce(recent.seconds, 0) AS billed_seconds, {unattributed_seconds} AS unattributed_seconds,
    settled_at IS NOT NULL AS settled
FROM engine_session AS session LEFT JOIN recent USING (id)
WHERE heartbeat_at >= :since AND started_at < :until
ORDER BY started_at
