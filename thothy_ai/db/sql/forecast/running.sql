-- Running jobs by kind, model (that of an adapter), and how long ago they were claimed; a class of ages is half as wide
-- again as the last.
SELECT
    kind,
    coalesce(base, model_name, model, '') AS model,
    count(*) AS jobs,
    avg(extract(epoch FROM now() - started_at))::float8 AS age,
    extract(epoch FROM min(enqueued_at))::float8 AS oldest
FROM job LEFT JOIN model_alias ON alias = model
    LEFT JOIN {adapters_served} ON adapter_name = coalesce(model_name, model)
WHERE state = 'running'
GROUP BY kind, 2, floor(ln(greatest(extract(epoch FROM now() - started_at), 0.1)) / ln(1.5))
