-- Ids of the jobs that a retry by filter selects, the oldest first.
SELECT id
FROM job
WHERE state = ANY(CAST(:states AS text[]))
    AND (CAST(:kind AS text) IS NULL OR kind = :kind)
    AND (CAST(:reason AS text) IS NULL OR reason = :reason)
ORDER BY id
