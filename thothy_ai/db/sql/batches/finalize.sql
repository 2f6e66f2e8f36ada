-- From now on, the batch can no longer be cancelled.
UPDATE api_batch
SET status = 'finalizing', finalizing_at = now()
WHERE id = :id AND status = 'in_progress'
