-- Ends a batch whose input is not valid.
UPDATE api_batch
SET status = 'failed', failed_at = now(), errors = CAST(:errors AS jsonb)
WHERE id = :id AND status IN ('validating', 'in_progress')
