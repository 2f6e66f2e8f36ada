-- Engines that were ready within the last day and are not now, unless they were stopped: in seconds, how long ago.
-- An engine that is started in vain, again and again, has been lost since it was last ready.
SELECT
    engine_name AS name,
    (array_agg(machine ORDER BY started_at DESC))[1] AS machine,
    extract(
        epoch FROM now() - max(coalesce(ended_at, heartbeat_at)) FILTER (WHERE ready_at IS NOT NULL)
    )::float8 AS seconds
FROM engine_session
WHERE heartbeat_at > now() - interval '1 day'
GROUP BY engine_name
HAVING bool_or(ready_at IS NOT NULL)
    AND NOT bool_or(ended_at IS NULL AND state IN ('ready', 'stopping') AND heartbeat_at > now() - {engine_silence})
    AND coalesce(
        (
            array_agg(end_reason ORDER BY started_at DESC)
            FILTER (WHERE ended_at IS NOT NULL OR heartbeat_at <= now() - {engine_silence})
        )[1] <> 'stopped',
        TRUE
    )
ORDER BY name
