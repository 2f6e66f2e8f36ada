-- The forecasts of the last drains that have ended, and the actual times: seconds. Those during which the queue was
-- paused, or a tenth as many jobs arrived as stood, are counted apart.
WITH ended AS (
    SELECT began_at FROM forecast WHERE ended_at IS NOT NULL GROUP BY began_at ORDER BY began_at DESC LIMIT :drains
)
SELECT
    began_at,
    p50_seconds AS p50,
    p90_seconds AS p90,
    extract(epoch FROM ended_at - made_at)::float8 AS actual,
    disturbed OR arrived > 0.1 * open_jobs AS disturbed
FROM forecast JOIN ended USING (began_at)
WHERE ended_at IS NOT NULL
ORDER BY made_at
