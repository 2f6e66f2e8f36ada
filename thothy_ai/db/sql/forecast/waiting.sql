-- Jobs that are due and do not run, by kind, model, place in planned order and deadline; both times are rounded.
SELECT
    kind,
    coalesce(model_name, model, '') AS model,
    floor(extract(epoch FROM thothy_virtual_deadline(priority, deadline, enqueued_at, scheduled_for)) / 600)::float8 AS planned,
    ceil(extract(epoch FROM deadline - now()) / 60)::float8 * 60 AS deadline,
    count(*) AS jobs
FROM job LEFT JOIN model_alias ON alias = model
WHERE (state = 'queued' AND NOT delayed) OR state = 'dispatched'
GROUP BY 1, 2, 3, 4
