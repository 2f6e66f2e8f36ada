-- Attempts that ended in the window, by kind, outcome and reason, with what they used.
-- An engine on several GPUs occupies all of them in each of its seconds; an engine without a GPU counts as one device.
SELECT
    a.kind,
    a.outcome,
    a.reason,
    count(*) AS attempts,
    sum(a.prompt_tokens) AS prompt_tokens,
    sum(a.cached_tokens) AS cached_tokens,
    sum(a.output_tokens) AS output_tokens,
    sum(a.compute_seconds * greatest(s.gpus, 1)) AS compute_seconds,
    sum(a.verification_seconds * greatest(s.gpus, 1)) AS verification_seconds,
    sum(a.saved_tokens) AS saved_tokens
FROM attempt AS a
LEFT JOIN engine_session AS s ON s.id = a.engine_session_id
WHERE a.finished_at >= :since AND a.finished_at < :until
GROUP BY a.kind, a.outcome, a.reason
