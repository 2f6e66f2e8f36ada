-- How many due jobs wait for each model that no engine serves, by the name or alias that they ask for; `limit` means so
-- many or more. The models are found by skipping through the index, so that a million jobs of one model cost one step; no
-- more than `names` of them, in the order of the alphabet: names come from producers.
WITH RECURSIVE asked AS (
    (SELECT model, 1 AS number FROM job WHERE state = 'queued' AND NOT delayed AND model IS NOT NULL ORDER BY model LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.model
        FROM job
        WHERE state = 'queued' AND NOT delayed AND job.model IS NOT NULL AND job.model > asked.model
        ORDER BY job.model
        LIMIT 1
    ), number + 1
    FROM asked
    WHERE asked.model IS NOT NULL AND number < :names
), unserved AS (
    SELECT asked.model
    FROM asked LEFT JOIN model_alias ON alias = asked.model
    WHERE asked.model IS NOT NULL AND NOT EXISTS (
        SELECT
        FROM engine_session
        WHERE {heard_of}
            AND engine_session.model_name = coalesce(model_alias.model_name, asked.model)
    )
)
SELECT model, (
    SELECT count(*)
    FROM (
        SELECT FROM job WHERE state = 'queued' AND NOT delayed AND job.model = unserved.model LIMIT :limit
    ) AS waiting
) AS jobs
FROM unserved
ORDER BY model
