-- Ends batches of which no job is open any more, and writes the deliveries of those with a webhook to notify. Counts
-- are of the jobs that still exist, follow-ups among them.
WITH ended AS (
    UPDATE batch
    SET ended_at = now()
    WHERE id = ANY(ARRAY(
        SELECT id
        FROM batch AS open
        WHERE ended_at IS NULL
            AND NOT EXISTS (
                SELECT FROM job
                WHERE batch_id = open.id AND batch_id IS NOT NULL AND finished_at IS NULL AND tenant = open.tenant
            )
        ORDER BY id
        LIMIT :limit
    ))
    RETURNING id, tenant, url, notify, jobs, created_at, ended_at
)
INSERT INTO webhook_delivery (batch_id, tenant, url, origin, payload)
SELECT ended.id, tenant, url, substring(url FROM '^https?://[^/?#]+'), jsonb_build_object(
    'type', 'batch.ended', 'timestamp', ended_at,
    'data', jsonb_build_object(
        'batch_id', ended.id, 'tenant', tenant, 'jobs', jobs, 'states', coalesce(states, '{}'),
        'enqueued_at', created_at, 'finished_at', coalesce(finished_at, ended_at)
    )
)
FROM ended CROSS JOIN LATERAL (
    SELECT jsonb_object_agg(state, number) AS states, max(last) AS finished_at
    FROM (
        SELECT state, count(*) AS number, max(finished_at) AS last
        FROM job
        WHERE batch_id = ended.id AND batch_id IS NOT NULL AND job.tenant = ended.tenant
        GROUP BY state
    ) AS by_state
) AS counted
WHERE notify = 'batch' AND url IS NOT NULL
RETURNING id
