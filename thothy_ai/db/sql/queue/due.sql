-- The next due jobs in planned order: at most `any_limit` of those that name no model, and of each of `models` as many as
-- `limits` says. What waits for other models is not read. Nothing while the queue is paused.
WITH next AS (
    (
        SELECT id, model, priority, deadline, enqueued_at, scheduled_for, source_key
        FROM job
        WHERE {due} AND model IS NULL
        ORDER BY {planned_order}
        LIMIT :any_limit
    )
    UNION ALL
    SELECT named.*
    FROM unnest(CAST(:models AS text[]), CAST(:limits AS bigint[])) AS wanted (model, places) CROSS JOIN LATERAL (
        SELECT id, job.model, priority, deadline, enqueued_at, scheduled_for, source_key
        FROM job
        WHERE {due} AND job.model = wanted.model
        ORDER BY {planned_order}
        LIMIT wanted.places
    ) AS named
)
SELECT id, model, priority, source_key
FROM next
WHERE NOT EXISTS (SELECT FROM queue_control WHERE name = 'default' AND paused)
ORDER BY {planned_order}
