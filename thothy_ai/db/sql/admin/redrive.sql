-- Queues dead, cancelled and expired jobs again, without failures and with all of their budgets. Attempt numbers
-- continue: they fence results.
-- A deadline that has passed is dropped, unless a new one is given. `detail` says who did it and why.
-- A job that killed engines stays in quarantine and runs alone: at the next engine death it is dead again, and no other
-- job is affected.
WITH ended AS (
    SELECT id
    FROM job
    WHERE id = ANY(CAST(:ids AS uuid[])) AND state IN ('dead', 'cancelled', 'expired')
    ORDER BY id
    FOR UPDATE
), redriven AS (
    UPDATE job
    SET state = 'queued', failures = 0, budget_after = attempt,
        engine_deaths = CASE WHEN reason = 'engine_killer' THEN least(engine_deaths, {deaths_to_run_alone}) ELSE 0 END,
        cancel_requested = FALSE, reason = NULL, detail = NULL,
        finished_at = NULL, not_before = now(), delayed = FALSE,
        deadline = coalesce(CAST(:deadline AS timestamptz), CASE WHEN deadline > now() THEN deadline END)
    FROM ended
    WHERE job.id = ended.id
    RETURNING job.id
), noted AS (
    INSERT INTO job_event (job_id, event, detail) SELECT id, 'redriven', CAST(:detail AS text) FROM redriven
)
SELECT id FROM redriven
