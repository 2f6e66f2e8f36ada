-- The device-seconds of this UTC day that are on the bill, by key.
SELECT key, CAST(sum(compute_seconds * {devices}) AS float8) AS seconds
FROM interactive_usage LEFT JOIN engine_session AS session ON session.id = engine_session_id
WHERE minute >= date_trunc('day', now()) AND key <> ''
GROUP BY key
