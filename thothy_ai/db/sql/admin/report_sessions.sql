-- Engines that were resident in the window, and for how many of its seconds.
-- An engine with a recent heartbeat is resident until the window's end; any other, until its last heartbeat.
SELECT
    id, model, device, gpus, since_at, until_at,
    greatest(0, extract(epoch FROM until_at - since_at))::float8 AS resident_seconds
FROM (
    SELECT
        id, model, device, gpus,
        greatest(started_at, :since) AS since_at,
        least(
            CAST(:until AS timestamptz),
            CASE
                WHEN ended_at IS NOT NULL THEN ended_at
                WHEN heartbeat_at > now() - {engine_silence} THEN now()
                ELSE heartbeat_at
            END
        ) AS until_at
    FROM engine_session
) AS clipped
WHERE until_at > since_at
ORDER BY since_at
