-- The names of engines that were last heard of within a day, but not recently.
SELECT DISTINCT engine_name AS name
FROM engine_session
WHERE engine_name <> '' AND heartbeat_at > now() - interval '1 day'
    AND engine_name <> ALL(ARRAY(SELECT engine_name FROM engine_session WHERE {heard_of}))
