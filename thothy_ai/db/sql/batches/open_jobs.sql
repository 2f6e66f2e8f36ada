-- Jobs of a batch that are to be cancelled.
SELECT id
FROM job
WHERE batch_id = :id AND batch_id IS NOT NULL AND finished_at IS NULL AND NOT cancel_requested
ORDER BY id
LIMIT :limit
