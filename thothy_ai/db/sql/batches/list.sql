-- A tenant's batches, the latest first.
SELECT id, endpoint, status, input_file_id, metadata, created_at, expires_at, in_progress_at, finalizing_at,
    completed_at, failed_at, expired_at, cancelling_at, cancelled_at, requests, output_file_id, error_file_id, errors,
    model, usage, completed, failed, output_seconds
FROM api_batch
WHERE tenant = :tenant AND (CAST(:after AS uuid) IS NULL OR id < :after)
ORDER BY id DESC
LIMIT :limit
