-- Finished but unsuccessful jobs go back to the queue with a clean slate. Attempt numbers go on: they fence results.
-- A deadline that has passed is dropped, unless a new one is given. `detail` says who did it and why.
-- A killer of engines stays a suspect, and runs alone: the next death ends it again, with nobody beside it.
WITH ended AS (
    SELECT id
    FROM job
    WHERE id = ANY(CAST(:ids AS uuid[])) AND state IN ('dead', 'cancelled', 'expired')
    ORDER BY id
    FOR UPDATE
), redriven AS (
    UPDATE job
    SET state = 'queued', failures = 0,
        engine_deaths = CASE WHEN reason = 'engine_killer' THEN least(engine_deaths, 2) ELSE 0 END, cancel_requested = FALSE, reason = NULL, detail = NULL,
        finished_at = NULL, not_before = now(), delayed = FALSE,
        deadline = coalesce(CAST(:deadline AS timestamptz), CASE WHEN deadline > now() THEN deadline END)
    FROM ended
    WHERE job.id = ended.id
    RETURNING job.id
), noted AS (
    INSERT INTO job_event (job_id, event, detail) SELECT id, 'redriven', CAST(:detail AS text) FROM redriven
)
SELECT id FROM redriven
