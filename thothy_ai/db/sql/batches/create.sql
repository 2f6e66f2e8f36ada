-- A new batch over a file of the same tenant, or the tenant's batch that has this key; none if there is no such file.
INSERT INTO api_batch (id, tenant, endpoint, input_file_id, metadata, output_seconds, idempotency_key)
SELECT CAST(:id AS uuid), :tenant, :endpoint, stored_file.id, CAST(:metadata AS jsonb), :output_seconds, :key
FROM stored_file
WHERE stored_file.id = :file AND tenant = :tenant AND deleted_at IS NULL
    AND (stored_file.expires_at IS NULL OR stored_file.expires_at > now())
ON CONFLICT (tenant, idempotency_key) DO UPDATE SET idempotency_key = EXCLUDED.idempotency_key
RETURNING id, endpoint, status, input_file_id, metadata, created_at, expires_at, in_progress_at, finalizing_at,
    completed_at, failed_at, expired_at, cancelling_at, cancelled_at, requests, output_file_id, error_file_id, errors,
    model, usage, completed, failed, output_seconds, {wake_batch_keeper}
