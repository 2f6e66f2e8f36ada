-- How many due jobs wait for each model or adapter that no engine serves, by the name or alias that they ask for, of
-- which `alias_of` is the model; `limit` means so many or more. The models are found by skipping through the index, so
-- that a million jobs of one model cost one step; no more than `names` of them, in the order of the alphabet: names
-- come from producers. The jobs of the names after those are counted together, in a row without a model.
WITH RECURSIVE asked AS (
    (
        SELECT model, 1 AS number
        FROM job
        WHERE state = 'queued' AND NOT delayed AND model IS NOT NULL
        ORDER BY model
        LIMIT 1
    )
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
    SELECT asked.model, model_alias.model_name AS alias_of
    FROM asked LEFT JOIN model_alias ON alias = asked.model
    WHERE asked.model IS NOT NULL AND NOT EXISTS (
        SELECT
        FROM engine_session
        WHERE {heard_of}
            AND coalesce(model_alias.model_name, asked.model) = ANY({model_names})
    )
), resident AS (
    SELECT DISTINCT unnest({model_names}) AS model_name FROM engine_session WHERE {heard_of}
), served AS (
    SELECT alias AS name FROM model_alias JOIN resident USING (model_name)
    UNION ALL
    SELECT model_name FROM resident WHERE model_name NOT IN (SELECT alias FROM model_alias)
), others AS (
    SELECT count(*) AS jobs
    FROM (
        SELECT
        FROM job
        WHERE state = 'queued' AND NOT delayed AND model > (SELECT asked.model FROM asked WHERE number = :names)
            AND model NOT IN (SELECT name FROM served)
        LIMIT :limit
    ) AS waiting
)
SELECT model, alias_of, (
    SELECT count(*)
    FROM (
        SELECT FROM job WHERE state = 'queued' AND NOT delayed AND job.model = unserved.model LIMIT :limit
    ) AS waiting
) AS jobs
FROM unserved
UNION ALL
SELECT NULL, NULL, jobs FROM others WHERE jobs > 0
ORDER BY model
