-- Takes back what is dispatched and not claimed, of a part of the queue or, if `scope` is NULL, of all of it: its
-- messages are stale from now on. Rows that are being claimed at this moment are left alone, and counted. Returns how
-- many jobs were running and dispatched.
WITH affected AS (
    SELECT id, state
    FROM job
    WHERE (state = 'running' OR state = 'dispatched') AND CASE CAST(:scope AS text)
        WHEN 'kind' THEN kind = :name
        WHEN 'tenant' THEN tenant = :name
        WHEN 'engine' THEN engine_name = :name
        WHEN 'model' THEN model = :name OR model IN (SELECT alias FROM model_alias WHERE model_name = :name)
        ELSE true
    END
), unclaimed AS (
    SELECT id
    FROM job
    WHERE state = 'dispatched' AND id IN (SELECT id FROM affected)
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), recalled AS (
    UPDATE job SET state = 'queued' FROM unclaimed WHERE job.id = unclaimed.id
)
SELECT count(*) FILTER (WHERE state = 'running') AS running, count(*) FILTER (WHERE state = 'dispatched') AS dispatched
FROM affected
