-- The engines that live: whether they take requests, where they listen, how many sequences they run at once, their
-- model, and the names that may be asked for, with the model or adapter that each stands for. Of several sessions of
-- one name, the last one counts. An alias hides a model of the same name. A server over HTTP is left out: who waits for
-- it may ask it himself.
WITH known AS (
    SELECT DISTINCT ON (engine_name) engine_name, id, address, model_name, {model_names} AS names, capacity, state
    FROM engine_session
    WHERE {heard_of} AND ended_at IS NULL
    ORDER BY engine_name, started_at DESC
)
SELECT id, engine_name, address, capacity, model_name, state = 'ready' AND NOT EXISTS (
    SELECT FROM queue_pause WHERE scope = 'engine' AND name = engine_name
) AS ready, (
    SELECT coalesce(json_object_agg(name, stands_for), '{}')
    FROM (
        SELECT alias AS name, model_alias.model_name AS stands_for
        FROM model_alias
        WHERE model_alias.model_name = ANY(names)
        UNION ALL
        SELECT name, name FROM unnest(names) AS name WHERE NOT EXISTS (SELECT FROM model_alias WHERE alias = name)
    ) AS askable
) AS models
FROM known
WHERE address NOT LIKE 'http%'
ORDER BY engine_name
