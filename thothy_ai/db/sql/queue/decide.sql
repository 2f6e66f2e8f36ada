-- A person's decision on a version of a job's artifact, fenced on that version and on what was decided of it before: of
-- two people who decide on one version, the second gets no row. An edit is the next version; `edit` is its body as
-- JSON. So is what the model makes of an artifact that is sent back: that takes one more attempt, with a new budget,
-- and what was accepted is no longer.
WITH current AS (
    SELECT id, tenant, attempt
    FROM job
    WHERE id = CAST(:id AS uuid) AND {of_tenant} AND state = 'succeeded' AND version = :version
        AND coalesce(review, 'clean') = ANY(CAST(:before AS text[]))
    FOR UPDATE
), decided AS (
    INSERT INTO decision (job_id, version, attempt, tenant, action, decided_by, note, voice, locale, example)
    SELECT id, :version, attempt, tenant, :action, :decided_by, :note, :voice, :locale, :example
    FROM current
), edited AS (
    INSERT INTO artifact_version (job_id, version, tenant, body, problem, findings, edited_by)
    SELECT id, :version + 1, tenant, CAST(:edit AS jsonb), :problem, CAST(:findings AS jsonb), :decided_by
    FROM current
    WHERE :action = 'edit'
), withdrawn AS (
    UPDATE artifact
    SET verdict = 'rejected', reason = 'sent_back', signature = NULL, draft = true
    FROM current
    WHERE job_id = current.id AND verdict = 'accepted' AND :action = 'send_back'
), settled AS (
    UPDATE job
    SET review = :after, version = CASE :action WHEN 'edit' THEN version + 1 ELSE version END,
        reason = CASE WHEN :action <> 'reopen' OR reason <> 'superseded' THEN reason END
    FROM current
    WHERE job.id = current.id AND :action <> 'send_back'
    RETURNING job.id, state
), sent_back AS (
    UPDATE job
    SET state = 'queued', review = NULL, version = version + 1, failures = max_attempts - 1,
        budget_after = job.attempt, engine_deaths = 0, cancel_requested = false, reason = NULL, detail = NULL,
        finished_at = NULL, not_before = now(), delayed = false,
        deadline = CASE WHEN deadline > now() THEN deadline END
    FROM current
    WHERE job.id = current.id AND :action = 'send_back'
    RETURNING job.id, state
), decided_on AS (
    SELECT id, state FROM settled UNION ALL SELECT id, state FROM sent_back
), notified AS (
    SELECT {notify_waiters} FROM (SELECT id, 0 AS part FROM decided_on) AS parts GROUP BY part
)
SELECT id, CASE state WHEN 'queued' THEN {wake_dispatcher} END
FROM decided_on
WHERE (SELECT count(*) FROM notified) >= 0  -- what nothing reads is not run
