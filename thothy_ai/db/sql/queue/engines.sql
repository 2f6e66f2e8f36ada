-- The engines that were heard of recently, by name: the models, adapters and aliases that each serves, how many jobs it
-- runs, and the lowest priority among those that are dispatched to it or run on it. `staffed`: whether a worker has
-- reached it within `worker_seconds`. A paused engine is not ready, and none serves a paused model. Of several sessions
-- of one name, the last one counts. An alias hides a model of the same name.
WITH known AS (
    SELECT DISTINCT ON (engine_name) engine_name, {model_names} AS names, capacity,
        state = 'ready' AND NOT EXISTS (
            SELECT FROM queue_pause WHERE scope = 'engine' AND name = engine_name
        ) AS ready,
        coalesce(worker_heartbeat_at > now() - make_interval(secs => :worker_seconds), false) AS staffed
    FROM engine_session
    WHERE {heard_of} AND ended_at IS NULL
    ORDER BY engine_name, started_at DESC
), running AS (
    SELECT engine_name, count(*) AS jobs, min(priority) AS lowest
    FROM job
    WHERE state = 'running'
    GROUP BY engine_name
)
SELECT known.engine_name AS name, ready, staffed, capacity, coalesce(jobs, 0) AS running,
    array(
        SELECT model
        FROM (
            SELECT alias AS model FROM model_alias WHERE model_alias.model_name = ANY(known.names)
            UNION ALL
            SELECT name FROM unnest(known.names) AS name
            WHERE name <> '' AND NOT EXISTS (SELECT FROM model_alias WHERE alias = name)
        ) AS askable
        WHERE model NOT IN ({paused_models})
    ) AS serves,
    least(lowest, (
        SELECT min(priority) FROM job WHERE state = 'dispatched' AND job.engine_name = known.engine_name
    )) AS lowest
FROM known LEFT JOIN running USING (engine_name)
ORDER BY name
