-- Attempts that ended in the window, by bin of time and outcome, with what they used.
SELECT
    floor(extract(epoch FROM a.finished_at - CAST(:origin AS timestamptz)) / :step)::integer AS bin,
    a.outcome,
    sum(a.prompt_tokens) AS prompt_tokens,
    sum(a.cached_tokens) AS cached_tokens,
    sum(a.output_tokens) AS output_tokens,
    sum(a.compute_seconds * greatest(s.gpus, 1)) AS compute_seconds
FROM attempt AS a
LEFT JOIN engine_session AS s ON s.id = a.engine_session_id
WHERE a.finished_at >= :since AND a.finished_at < :until
GROUP BY 1, 2
