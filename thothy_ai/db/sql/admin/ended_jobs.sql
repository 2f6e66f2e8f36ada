-- The jobs that a retry by filter selects, the oldest first.
SELECT id, kind, reason
FROM job
WHERE state = :state
    AND (CAST(:kind AS text) IS NULL OR kind = :kind)
    AND (CAST(:reason AS text) IS NULL OR reason = :reason)
ORDER BY id
