-- All jobs of a batch, in the order of its lines.
SELECT id FROM job WHERE batch_id = :id AND batch_id IS NOT NULL ORDER BY id
