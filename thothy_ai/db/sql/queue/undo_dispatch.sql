-- Queues again what could not be published. If a message went out nevertheless, its dispatch number fences it off.
-- Rows are locked in the same order as by claims.
WITH ours AS (
    SELECT job.id
    FROM job JOIN {hints} AS given (id, dispatch_no)
        USING (id, dispatch_no)
    WHERE state = 'dispatched'
    ORDER BY job.id
    FOR UPDATE OF job
)
UPDATE job
SET state = 'queued'
FROM ours
WHERE job.id = ours.id
