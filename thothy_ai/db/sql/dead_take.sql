-- Takes dead jobs for what the rest of the transaction does to them, those that died first first. One that another
-- operator has taken is left to them.
SELECT id
FROM job
WHERE state = 'dead'
    AND finished_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
    AND finished_at < coalesce(CAST(:until AS timestamptz), 'infinity')
    AND (CAST(:ids AS uuid[]) IS NULL OR id = ANY(CAST(:ids AS uuid[])))
    AND (CAST(:kinds AS text[]) IS NULL OR kind = ANY(CAST(:kinds AS text[])))
    AND (CAST(:reasons AS text[]) IS NULL OR reason = ANY(CAST(:reasons AS text[])))
ORDER BY finished_at, id
LIMIT :limit
FOR UPDATE SKIP LOCKED
