-- How far a drain has come: jobs by state, jobs that finished since it began (NULL: now), and since when its work was
-- due. `later` jobs may not run for a while: they were never tried, and are not due within `soon_seconds`. `unserved`
-- ones are queued and name a model that no engine serves.
WITH served AS (
    SELECT DISTINCT unnest({model_names}) AS model_name FROM engine_session WHERE {heard_of}
), askable AS ( -- an alias hides a model of the same name
    SELECT alias AS model FROM model_alias JOIN served USING (model_name)
    UNION
    SELECT model_name FROM served WHERE NOT EXISTS (SELECT FROM model_alias WHERE alias = model_name)
)
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
    now() AS now,
    count(*) FILTER (
        WHERE state = 'queued' AND NOT later AND model IS NOT NULL AND model NOT IN (SELECT model FROM askable)
    ) AS unserved
FROM (
    SELECT
        *,
        state = 'queued' AND attempt = 0 AND not_before > now() + make_interval(secs => :soon_seconds) AS later
    FROM job
    WHERE {open}
) AS unfinished
