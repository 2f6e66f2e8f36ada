-- Closes the hours from `since` to `until`: sums their attempts, the jobs that ended without success, requests over
-- HTTP, and the engines' residency, and counts what each engine session is billed for. `queue/lock_hours` has locked
-- the progress: whoever changes a closed hour's attempts later adds the difference. A row exists already if dead jobs
-- of the hour were purged.
WITH tried AS (
    SELECT date_trunc('hour', finished_at) AS hour, tenant, kind, {model_name} AS model_name, adapter,
        engine_session_id,
        sum(attempt.compute_seconds) AS engine_seconds, {attempt_usage}
    FROM attempt LEFT JOIN engine_session AS session ON session.id = engine_session_id
    WHERE finished_at >= :since AND finished_at < :until
    GROUP BY 1, 2, 3, 4, 5, 6
), ended AS (
    SELECT date_trunc('hour', finished_at) AS hour, tenant, kind, '' AS model_name, '' AS adapter, {job_usage}
    FROM job
    WHERE finished_at >= :since AND finished_at < :until AND state <> 'succeeded'
    GROUP BY 1, 2, 3
), asked AS (
    SELECT date_trunc('hour', minute) AS hour, tenant, {interactive_kind} AS kind, {model_name} AS model_name, adapter,
        {interactive_usage}
    FROM interactive_usage AS asked LEFT JOIN engine_session AS session ON session.id = asked.engine_session_id
    WHERE minute >= :since AND minute < :until
    GROUP BY 1, 2, 3, 4, 5
), resident AS (
    {residency}
), sessions AS (
    SELECT id
    FROM engine_session
    WHERE id = ANY(ARRAY(SELECT engine_session_id FROM tried))
    ORDER BY id
    FOR NO KEY UPDATE
), billed AS (
    UPDATE engine_session
    SET billed_seconds = billed_seconds + seconds
    FROM (SELECT engine_session_id, sum(engine_seconds) AS seconds FROM tried GROUP BY 1) AS sums
    WHERE id = engine_session_id AND (SELECT count(*) FROM sessions) >= 0
), progressed AS (
    UPDATE usage_progress SET closed_until = :until WHERE name = 'default'
), used AS (
    SELECT hour, tenant, kind, model_name, adapter, {usage_sums} FROM tried
    UNION ALL
    SELECT hour, tenant, kind, model_name, adapter, {usage_sums} FROM ended
    UNION ALL
    SELECT hour, tenant, kind, model_name, adapter, {usage_sums} FROM asked
    UNION ALL
    SELECT hour, tenant, kind, model_name, adapter, {only_resident} FROM resident
    UNION ALL
    SELECT hour, tenant, kind, model_name, adapter, {no_usage}
    FROM usage_by_hour
    WHERE hour >= :since AND hour < :until
)
INSERT INTO usage_by_hour (hour, tenant, kind, model_name, adapter, {usage_sums}, closed_seconds)
SELECT hour, tenant, kind, model_name, adapter, {summed_usage}, sum(resident_seconds + busy_seconds)
FROM used
GROUP BY hour, tenant, kind, model_name, adapter
ORDER BY hour, tenant, kind, model_name, adapter
{add_usage},
    closed_seconds = usage_by_hour.resident_seconds + usage_by_hour.busy_seconds + excluded.closed_seconds
