-- Puts back what could not be published. Should a message have gone out all the same, its dispatch number fences it.
-- Locked in one order, as by claims.
WITH ours AS (
    SELECT job.id
    FROM job JOIN unnest(CAST(:ids AS uuid[]), CAST(:dispatch_nos AS integer[])) AS given (id, dispatch_no)
        USING (id, dispatch_no)
    WHERE state = 'dispatched'
    ORDER BY job.id
    FOR UPDATE OF job
)
UPDATE job
SET state = 'queued'
FROM ours
WHERE job.id = ours.id
