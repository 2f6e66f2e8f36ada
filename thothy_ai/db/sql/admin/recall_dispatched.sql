-- Takes back what is dispatched and not claimed: its messages are stale from now on. Rows that are being claimed at this
-- moment are left alone, and counted. Returns how many jobs were running and dispatched.
WITH unclaimed AS (
    SELECT id FROM job WHERE state = 'dispatched' ORDER BY id FOR UPDATE SKIP LOCKED
), recalled AS (
    UPDATE job SET state = 'queued' FROM unclaimed WHERE job.id = unclaimed.id
)
SELECT count(*) FILTER (WHERE state = 'running') AS running, count(*) FILTER (WHERE state = 'dispatched') AS dispatched
FROM job
WHERE state = 'running' OR state = 'dispatched'
