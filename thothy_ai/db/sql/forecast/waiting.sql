-- Jobs that are due and do not run, by kind, model (that of an adapter), place in planned order and deadline (seconds
-- from now; NULL: none). Places are rounded to ten minutes; deadlines down to a minute, those beyond an hour to a
-- quarter of an hour, those beyond a day to an hour. The place is computed once for jobs that were enqueued within ten
-- minutes: it costs more than reading a job. What waits for a pause of a part of the queue to end is left out.
SELECT
    kind,
    coalesce(base, model_name, model, '') AS model,
    planned,
    floor(seconds / width) * width AS deadline,
    sum(jobs)::float8 AS jobs,
    date_part('epoch', min(enqueued_at)) AS oldest
FROM (
    SELECT
        *,
        floor(
            date_part('epoch', thothy_virtual_deadline(priority, deadline, enqueued_at, scheduled_for)) / 600
        ) AS planned,
        CASE WHEN deadline IS NOT NULL THEN greatest(date_part('epoch', deadline - now()), 0) END AS seconds,
        CASE
            WHEN deadline < now() + interval '1 hour' THEN 60.0
            WHEN deadline < now() + interval '1 day' THEN 900.0
            ELSE 3600.0
        END::float8 AS width
    FROM (
        SELECT kind, model, priority, deadline, scheduled_for, min(enqueued_at) AS enqueued_at, count(*) AS jobs
        FROM job
        WHERE (state = 'queued' AND NOT delayed AND NOT {held}) OR state = 'dispatched'
        GROUP BY kind, model, priority, deadline, scheduled_for, floor(date_part('epoch', enqueued_at) / 600)
    ) AS alike
) AS placed
LEFT JOIN model_alias ON alias = model
LEFT JOIN {adapters_served} ON adapter_name = coalesce(model_name, model)
GROUP BY 1, 2, 3, 4
