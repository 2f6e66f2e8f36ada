-- The engines that were heard of recently, by name: the models and aliases that each serves, how many jobs it runs, and
-- the lowest priority among those that are dispatched to it or run on it. `staffed`: whether a worker has reached it
-- within `worker_seconds`; NULL if no worker has said so, since earlier releases' do not. Of several sessions of one name, the last one
-- counts. An alias hides a model of the same name. Where none was heard of there is one row, of the lists without an
-- engine: any worker takes jobs from those, and so do workers of earlier releases.
WITH resident AS (
    SELECT DISTINCT ON (engine_name) engine_name, model_name, capacity, state = 'ready' AS ready,
        engine_name = '' OR {staffed} AS staffed
    FROM engine_session
    WHERE {heard_of} AND ended_at IS NULL
    ORDER BY engine_name, started_at DESC
), known AS (
    SELECT engine_name, model_name, capacity, ready, staffed FROM resident
    UNION ALL
    SELECT '', '', 0, true, true WHERE NOT EXISTS (SELECT FROM engine_session WHERE {heard_of})
), running AS (
    SELECT coalesce(engine_name, '') AS engine_name, count(*) AS jobs, min(priority) AS lowest
    FROM job
    WHERE state = 'running'
    GROUP BY 1
)
SELECT known.engine_name AS name, ready, staffed, capacity, coalesce(jobs, 0) AS running,
    array(
        SELECT alias FROM model_alias WHERE model_alias.model_name = known.model_name
        UNION ALL
        SELECT known.model_name
        WHERE known.model_name <> '' AND NOT EXISTS (SELECT FROM model_alias WHERE alias = known.model_name)
    ) AS serves,
    least(lowest, (
        SELECT min(priority) FROM job WHERE state = 'dispatched' AND job.engine_name = known.engine_name
    )) AS lowest
FROM known LEFT JOIN running USING (engine_name)
ORDER BY name
