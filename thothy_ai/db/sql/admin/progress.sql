-- How far a drain has come: jobs by state, jobs that finished since it began (NULL: now), and since when its work was due.
-- `later` jobs may not run for a while: they were never tried, and are not due within `soon_seconds`.
SELECT
    count(*) FILTER (WHERE state = 'queued' AND NOT later) AS queued,
    count(*) FILTER (WHERE state = 'dispatched') AS dispatched,
    count(*) FILTER (WHERE state = 'running') AS running,
    count(*) FILTER (WHERE later) AS later,
    (SELECT count(*) FROM job WHERE finished_at >= coalesce(CAST(:since AS timestamptz), now())) AS finished,
    min(CASE WHEN attempt = 0 THEN least(greatest(enqueued_at, not_before), now()) ELSE enqueued_at END)
        FILTER (WHERE NOT later) AS oldest,
    min(not_before) FILTER (WHERE state = 'queued' AND not_before > now()) AS next_due,
    coalesce(bool_and(state = 'queued' AND not_before > now()) FILTER (WHERE NOT later), false) AS all_wait,
    now() AS now
FROM (
    SELECT
        *,
        state = 'queued' AND attempt = 0 AND not_before > now() + make_interval(secs => :soon_seconds) AS later
    FROM job
    WHERE {open}
) AS unfinished
