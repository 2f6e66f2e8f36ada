-- Closed hours whose attempts add up to more than the bill has: attempts came after their hour was closed.
-- Less is no error: attempts are deleted with their jobs, the bill is kept.
WITH bounds AS (
    SELECT CAST(:since AS timestamptz) AS since, least(CAST(:until AS timestamptz), closed_until) AS until
    FROM usage_progress
    WHERE name = 'default'
), tried AS (
    SELECT date_trunc('hour', finished_at) AS hour, tenant, kind, {model_name} AS model_name, adapter, {attempt_usage}
    FROM bounds, attempt LEFT JOIN engine_session AS session ON session.id = engine_session_id
    WHERE finished_at >= since AND finished_at < until
    GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    SELECT date_trunc('hour', minute), tenant, {interactive_kind}, {model_name}, adapter, {interactive_usage}
    FROM bounds, interactive_usage AS asked LEFT JOIN engine_session AS session ON session.id = asked.engine_session_id
    WHERE minute >= since AND minute < until
    GROUP BY 1, 2, 3, 4, 5
)
SELECT hour, tenant, kind, model_name, adapter, tried.attempts AS attempts, tried.busy_seconds AS busy_seconds,
    coalesce(billed.attempts, 0) AS billed_attempts, coalesce(billed.busy_seconds, 0) AS billed_seconds
FROM tried LEFT JOIN usage_by_hour AS billed USING (hour, tenant, kind, model_name, adapter)
WHERE tried.attempts > coalesce(billed.attempts, 0)
    OR tried.busy_seconds > coalesce(billed.busy_seconds, 0) * 1.000001 + 0.001
ORDER BY hour, tenant, kind, model_name, adapter
