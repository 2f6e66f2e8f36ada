-- Says that a worker still has these messages and waits for its engine: they are not lost.
-- Locked in one order, as by claims; what somebody else is changing now is not waiting.
WITH ours AS (
    SELECT job.id
    FROM job JOIN unnest(CAST(:ids AS uuid[]), CAST(:dispatch_nos AS integer[])) AS given (id, dispatch_no)
        USING (id, dispatch_no)
    WHERE state = 'dispatched'
    ORDER BY job.id
    FOR UPDATE OF job SKIP LOCKED
)
UPDATE job
SET dispatched_at = now()
FROM ours
WHERE job.id = ours.id
