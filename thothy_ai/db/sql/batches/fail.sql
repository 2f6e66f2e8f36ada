-- Ends a batch whose input is not valid; of one in progress, no more is enqueued.
UPDATE api_batch
SET errors = CAST(:errors AS jsonb), status = CASE status WHEN 'validating' THEN 'failed' ELSE status END,
    failed_at = CASE status WHEN 'validating' THEN now() END
WHERE id = :id AND status IN ('validating', 'in_progress')
