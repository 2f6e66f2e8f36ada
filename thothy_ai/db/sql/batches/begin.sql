-- Begins a batch whose input is valid, unless it was cancelled meanwhile.
UPDATE api_batch
SET status = 'in_progress', in_progress_at = now(), lines = :lines, requests = :requests, model = :model
WHERE id = :id AND status = 'validating'
