-- Deletes dead jobs with their requests and their history. The caller has locked them in this transaction.
-- The ids are an array in every part: each partition of the history is searched by its index. What hours that are not
-- closed will lack is summed now.
-- Locks as `worker/record_usage`: progress, sessions by id, attempts, hours.
WITH progress AS (
    SELECT closed_until FROM usage_progress WHERE name = 'default' FOR SHARE
), doomed AS (
    SELECT id FROM job WHERE id = ANY(CAST(:ids AS uuid[])) AND state = 'dead'
), purged AS (
    DELETE FROM job
    WHERE id = ANY(CAST(:ids AS uuid[])) AND state = 'dead'
    RETURNING id, tenant, kind, state, finished_at
), sessions AS (
    SELECT id
    FROM engine_session
    WHERE id = ANY(ARRAY(SELECT engine_session_id FROM attempt WHERE job_id = ANY(CAST(:ids AS uuid[]))))
        AND (SELECT closed_until FROM progress) IS NOT NULL
    ORDER BY id
    FOR NO KEY UPDATE
), attempts AS (
    DELETE FROM attempt
    WHERE job_id = ANY(CAST(:ids AS uuid[])) AND (SELECT count(*) FROM sessions) >= 0
    RETURNING tenant, kind, engine_session_id, adapter, finished_at, outcome, compute_seconds, verification_seconds,
        prompt_tokens, cached_tokens, output_tokens, saved_tokens
), artifacts AS (
    DELETE FROM artifact WHERE job_id = ANY(CAST(:ids AS uuid[]))
), events AS (
    DELETE FROM job_event WHERE job_id = ANY(CAST(:ids AS uuid[]))
), used AS (
    SELECT date_trunc('hour', finished_at) AS hour, tenant, kind, {model_name} AS model_name, adapter, {attempt_usage}
    FROM attempts AS attempt LEFT JOIN engine_session AS session ON session.id = engine_session_id
    WHERE finished_at >= (SELECT closed_until FROM progress)
    GROUP BY 1, 2, 3, 4, 5
    UNION ALL
    SELECT date_trunc('hour', finished_at), tenant, kind, '', '', {job_usage}
    FROM purged
    WHERE finished_at >= (SELECT closed_until FROM progress)
    GROUP BY 1, 2, 3
    UNION ALL
    SELECT hour, tenant, kind, model_name, adapter, {usage_sums} FROM ({yields_of_doomed}) AS known
), kept AS (
    INSERT INTO usage_by_hour (hour, tenant, kind, model_name, adapter, {usage_sums})
    SELECT hour, tenant, kind, model_name, adapter, {summed_usage}
    FROM used
    GROUP BY hour, tenant, kind, model_name, adapter
    ORDER BY hour, tenant, kind, model_name, adapter
    {add_usage}
), billed AS (
    UPDATE engine_session
    SET billed_seconds = billed_seconds + sums.seconds
    FROM (
        SELECT engine_session_id, sum(compute_seconds) AS seconds
        FROM attempts
        WHERE finished_at >= (SELECT closed_until FROM progress)
        GROUP BY 1
    ) AS sums
    WHERE id = sums.engine_session_id
)
SELECT id FROM purged
