-- The usage of hours, or parts of hours, that are not closed: as `queue/close_hours` will sum it.
WITH used AS (
    SELECT date_trunc('hour', finished_at) AS hour, tenant, kind, {model_name} AS model_name, adapter, {attempt_usage}
    FROM attempt LEFT JOIN engine_session AS session ON session.id = engine_session_id
    WHERE finished_at >= :since AND finished_at < :until
    GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    SELECT date_trunc('hour', minute), tenant, {interactive_kind}, {model_name}, adapter, {interactive_usage}
    FROM interactive_usage AS asked LEFT JOIN engine_session AS session ON session.id = asked.engine_session_id
    WHERE minute >= :since AND minute < :until
    GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    SELECT date_trunc('hour', finished_at), tenant, kind, '', '', {job_usage}
    FROM job
    WHERE finished_at >= :since AND finished_at < :until AND state <> 'succeeded'
    GROUP BY 1, 2, 3
    UNION ALL
    SELECT hour, tenant, kind, model_name, adapter, {only_resident}
    FROM ({residency}) AS resident
)
SELECT hour, tenant, kind, model_name, adapter, {usage_sums}, CAST(NULL AS float8) AS closed_seconds,
    CAST(NULL AS timestamptz) AS revised_at
FROM used
ORDER BY hour, tenant, kind, model_name, adapter
