-- Attempts that ended in the window, by kind, outcome and reason, with what they used.
-- An engine on several GPUs occupies all of them in each of its seconds; an engine without a GPU counts as one device.
-- A rejected draft that is kept for a person is not wasted yet, and one that was approved is not wasted at all.
SELECT
    attempt.kind,
    outcome,
    attempt.reason,
    count(*) AS attempts,
    sum(attempt.prompt_tokens) AS prompt_tokens,
    sum(attempt.cached_tokens) AS cached_tokens,
    sum(attempt.output_tokens) AS output_tokens,
    sum(compute_seconds * {devices}) AS compute_seconds,
    coalesce(sum(compute_seconds * {devices}) FILTER (WHERE review = 'approved'), 0) AS redeemed_seconds,
    coalesce(sum(compute_seconds * {devices}) FILTER (WHERE review <> 'approved'), 0) AS draft_seconds,
    sum(verification_seconds * {devices}) AS verification_seconds,
    sum(saved_tokens) AS saved_tokens
FROM attempt
LEFT JOIN engine_session AS session ON session.id = engine_session_id
LEFT JOIN LATERAL (SELECT review FROM job WHERE job.id = attempt.job_id AND {kept_draft}) AS draft ON true
WHERE attempt.finished_at >= :since AND attempt.finished_at < :until
GROUP BY attempt.kind, outcome, attempt.reason
