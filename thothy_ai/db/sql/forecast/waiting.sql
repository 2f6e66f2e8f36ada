-- Jobs that are due and do not run, by kind, model, place in planned order and deadline (seconds from now; NULL: none).
-- Places are rounded to ten minutes; deadlines down to a minute, those beyond an hour to a quarter of an hour, those
-- beyond a day to an hour.
SELECT kind, model, planned, floor(seconds / width) * width AS deadline, sum(jobs)::float8 AS jobs, min(oldest) AS oldest
FROM (
    SELECT
        *,
        CASE WHEN seconds < 3600 THEN 60.0 WHEN seconds < 86400 THEN 900.0 ELSE 3600.0 END::float8 AS width
    FROM (
        SELECT
            kind,
            coalesce(model_name, model, '') AS model,
            floor(
                extract(epoch FROM thothy_virtual_deadline(priority, deadline, enqueued_at, scheduled_for)) / 600
            )::float8 AS planned,
            CASE WHEN deadline IS NOT NULL THEN greatest(extract(epoch FROM deadline - now()), 0) END::float8 AS seconds,
            count(*) AS jobs,
            extract(epoch FROM min(enqueued_at))::float8 AS oldest
        FROM job LEFT JOIN model_alias ON alias = model
        WHERE (state = 'queued' AND NOT delayed) OR state = 'dispatched'
        GROUP BY 1, 2, 3, deadline
    ) AS exact
) AS waiting
GROUP BY 1, 2, 3, 4
