-- Notes that the jobs of so many lines are enqueued. None if the batch was cancelled meanwhile.
UPDATE api_batch
SET enqueued = greatest(enqueued, :lines)
WHERE id = :id AND status = 'in_progress'
RETURNING id
