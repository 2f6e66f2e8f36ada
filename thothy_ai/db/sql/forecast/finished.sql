-- Jobs that ended in the window, by kind and the model that ran them last. `finished`: not those that
-- were cancelled or expired.
SELECT
    kind,
    coalesce(model_name, '') AS model,
    count(*) FILTER (WHERE job.state IN ('succeeded', 'dead')) AS finished,
    count(*) AS ended
FROM job LEFT JOIN engine_session ON engine_session.id = engine_session_id
WHERE job.finished_at > :since AND job.finished_at <= :until
GROUP BY 1, 2
