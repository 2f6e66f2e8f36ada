-- Engines that were resident in the window, for how many of its seconds; and since they started, for how many they were
-- busy past the queue, and for how many nothing accounts.
-- An engine with a recent heartbeat is resident until the window's end; any other, until its last heartbeat.
WITH recent AS (
    {recent_usage}
)
SELECT
    id, model, device, gpus, declared, since_at, until_at, direct_seconds, interactive_seconds,
    unattributed_seconds,
    greatest(0, extract(epoch FROM until_at - since_at))::float8 AS resident_seconds
FROM (
    SELECT
        id, model, device, gpus, declared, direct_seconds, interactive_seconds,
        {unattributed_seconds} AS unattributed_seconds,
        greatest(started_at, :since) AS since_at,
        least(
            CAST(:until AS timestamptz),
            CASE
                WHEN ended_at IS NOT NULL THEN ended_at
                WHEN heartbeat_at > now() - {engine_silence} THEN now()
                ELSE heartbeat_at
            END
        ) AS until_at
    FROM engine_session LEFT JOIN recent USING (id)
) AS clipped
WHERE until_at > since_at
ORDER BY since_at
