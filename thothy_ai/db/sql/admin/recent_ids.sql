-- The newest jobs, for shell completion.
SELECT id, kind, state FROM job ORDER BY id DESC LIMIT :limit
