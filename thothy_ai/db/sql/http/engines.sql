-- The ready engines that are not paused: where they listen, how many sequences they run at once, and the
-- names by which their models are asked for. Of several sessions of one name, the last one counts. An alias hides a
-- model of the same name. A server over HTTP is left out: who waits for it may ask it himself.
WITH known AS (
    SELECT DISTINCT ON (engine_name) engine_name, id, address, model_name, capacity, state
    FROM engine_session
    WHERE {heard_of} AND ended_at IS NULL
    ORDER BY engine_name, started_at DESC
)
SELECT id, engine_name, address, capacity,
    array(
        SELECT alias FROM model_alias WHERE model_alias.model_name = known.model_name
        UNION ALL
        SELECT known.model_name WHERE NOT EXISTS (SELECT FROM model_alias WHERE alias = known.model_name)
    ) AS models
FROM known
WHERE state = 'ready' AND address NOT LIKE 'http%'
    AND NOT EXISTS (SELECT FROM queue_pause WHERE scope = 'engine' AND name = engine_name)
ORDER BY engine_name
