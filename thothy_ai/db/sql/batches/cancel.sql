-- Cancels a batch of which requests may still run; none if there is no such batch.
UPDATE api_batch
SET status = 'cancelling', cancelling_at = now()
WHERE id = :id AND tenant = :tenant AND status IN ('validating', 'in_progress')
RETURNING id, endpoint, status, input_file_id, metadata, created_at, expires_at, in_progress_at, finalizing_at,
    completed_at, failed_at, expired_at, cancelling_at, cancelled_at, requests, output_file_id, error_file_id, errors,
    model, usage, completed, failed, output_seconds, {wake_batch_keeper}
