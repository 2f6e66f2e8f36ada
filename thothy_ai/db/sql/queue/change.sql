-- Changes when waiting jobs of a tenant, or of all if it is NULL, are to run, and wakes the dispatcher. `change` is a
-- JSON object with those of priority, deadline and not_before that change; null removes a time. A dispatched job is
-- queued again, and the number of its next dispatch fences its message off. Returns the jobs that wait, and whether
-- each was changed: it is not if it could not start before its deadline. Rows are locked in the order of their ids, so
-- that two callers with the same jobs cannot deadlock.
WITH waiting AS (
    SELECT id, priority, deadline, not_before, scheduled_for, delayed
    FROM job
    WHERE id = ANY(CAST(:ids AS uuid[])) AND {waiting} AND NOT cancel_requested AND {of_tenant}
    ORDER BY id
    FOR UPDATE
), given AS (
    SELECT priority, deadline, CAST(:change AS jsonb) ? 'deadline' AS another_deadline,
           CAST(:change AS jsonb) ? 'not_before' AS another_start,
           {start}
    FROM jsonb_to_record(CAST(:change AS jsonb)) AS given (
        priority smallint, deadline timestamptz, not_before timestamptz
    )
), wanted AS (
    SELECT id, coalesce(given.priority, waiting.priority) AS priority,
           CASE WHEN another_deadline THEN given.deadline ELSE waiting.deadline END AS deadline,
           CASE WHEN another_start THEN given.not_before ELSE waiting.not_before END AS not_before,
           CASE WHEN another_start THEN given.scheduled_for ELSE waiting.scheduled_for END AS scheduled_for,
           CASE WHEN another_start THEN given.delayed ELSE waiting.delayed END AS delayed
    FROM waiting CROSS JOIN given
), changed AS (
    UPDATE job
    SET state = 'queued', priority = wanted.priority, deadline = wanted.deadline, not_before = wanted.not_before,
        scheduled_for = wanted.scheduled_for, delayed = wanted.delayed,
        reason = NULL, detail = NULL  -- of an earlier attempt
    FROM wanted
    WHERE job.id = wanted.id AND (wanted.scheduled_for < wanted.deadline) IS NOT FALSE
    RETURNING job.id
), noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, 'changed', CAST(:detail AS text) FROM changed
)
SELECT id, id IN (SELECT id FROM changed) AS changed, {wake_dispatcher}
FROM waiting
