-- Batches that have not ended: what is to be done for them. `idle`: none of their jobs is open.
SELECT id, tenant, endpoint, status, input_file_id, created_at, expires_at, lines, requests, enqueued,
    errors IS NOT NULL AS stopped,
    expires_at <= now() + interval '15 seconds' AS over,
    NOT EXISTS (
        SELECT FROM job WHERE batch_id = api_batch.id AND batch_id IS NOT NULL AND finished_at IS NULL
    ) AS idle
FROM api_batch
WHERE {open_batch}
ORDER BY id
