-- Notes that a worker still has these messages and waits for its engine: they are not lost.
-- Rows are locked in the same order as by claims; a row that another transaction is changing no longer waits.
WITH ours AS (
    SELECT job.id
    FROM job JOIN {hints} AS given (id, dispatch_no)
        USING (id, dispatch_no)
    WHERE state = 'dispatched'
    ORDER BY job.id
    FOR UPDATE OF job SKIP LOCKED
)
UPDATE job
SET dispatched_at = now()
FROM ours
WHERE job.id = ours.id
