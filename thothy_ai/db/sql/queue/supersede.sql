-- Takes back follow-ups of a version that no longer stands, and theirs: those that wait are cancelled, those that run
-- are stopped, and what was written is neither exported nor reviewed. It resembles the next version's: nothing is
-- compared with it. What ended without an artifact goes on saying why. The caller has locked the parent.
WITH RECURSIVE named AS (
    SELECT unnest(CAST(:ids AS uuid[])) AS id
    UNION
    SELECT job.id FROM named JOIN job ON job.parent_id = named.id
), found AS (
    SELECT job.id, {waiting} AS waits
    FROM job JOIN named USING (id)
    WHERE reason IS DISTINCT FROM 'superseded' AND state NOT IN ('dead', 'cancelled', 'expired')
    ORDER BY job.id
    FOR UPDATE OF job
), superseded AS (
    UPDATE job
    SET reason = 'superseded', detail = 'the text that it follows is another now',
        state = CASE WHEN waits THEN 'cancelled' ELSE state END,
        finished_at = CASE WHEN waits THEN now() ELSE finished_at END,
        cancel_requested = cancel_requested OR waits OR state = 'running',
        review = CASE state WHEN 'succeeded' THEN 'superseded' END
    FROM found
    WHERE job.id = found.id
    RETURNING job.id, waits
), withdrawn AS (
    UPDATE artifact SET signature = NULL FROM superseded WHERE job_id = superseded.id AND signature IS NOT NULL
), noted AS (
    INSERT INTO job_event (job_id, event, detail) SELECT id, 'cancelled', 'superseded' FROM superseded WHERE waits
), notified AS (
    SELECT {notify_waiters} FROM (SELECT id, 0 AS part FROM superseded WHERE waits) AS parts GROUP BY part
)
SELECT id FROM superseded WHERE (SELECT count(*) FROM notified) >= 0  -- what nothing reads is not run
