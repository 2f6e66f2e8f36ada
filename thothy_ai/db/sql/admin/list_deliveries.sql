-- Deliveries of webhooks, newest first. A filter that is NULL lets everything through.
SELECT id, batch_id, tenant, url, payload ->> 'type' AS type, payload -> 'data' ->> 'job_id' AS job_id,
    {delivery_state} AS state, attempts, created_at, delivered_at, dead_at,
    CASE WHEN {undelivered} THEN next_attempt_at END AS next_attempt_at, status, error
FROM webhook_delivery
WHERE (CAST(:state AS text) IS NULL OR {delivery_state} = CAST(:state AS text))
    AND (CAST(:tenant AS text) IS NULL OR tenant = CAST(:tenant AS text))
ORDER BY created_at DESC, id
LIMIT :limit
