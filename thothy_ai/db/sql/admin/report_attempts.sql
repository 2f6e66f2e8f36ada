-- Attempts that ended in the window, by kind, outcome and reason, with what they used.
-- An engine on several GPUs occupies all of them in each of its seconds; an engine without a GPU counts as one device.
-- A rejected draft that is kept for a person is not wasted yet, and one that was approved is not wasted at all.
SELECT
    a.kind,
    a.outcome,
    a.reason,
    count(*) AS attempts,
    sum(a.prompt_tokens) AS prompt_tokens,
    sum(a.cached_tokens) AS cached_tokens,
    sum(a.output_tokens) AS output_tokens,
    sum(a.compute_seconds * greatest(s.gpus, 1)) AS compute_seconds,
    coalesce(sum(a.compute_seconds * greatest(s.gpus, 1)) FILTER (WHERE kept AND review = 'approved'), 0)
        AS redeemed_seconds,
    coalesce(sum(a.compute_seconds * greatest(s.gpus, 1)) FILTER (WHERE kept AND review <> 'approved'), 0)
        AS draft_seconds,
    sum(a.verification_seconds * greatest(s.gpus, 1)) AS verification_seconds,
    sum(a.saved_tokens) AS saved_tokens
FROM attempt AS a
LEFT JOIN engine_session AS s ON s.id = a.engine_session_id
LEFT JOIN LATERAL (
    SELECT review, true AS kept
    FROM job
    WHERE a.outcome = 'rejected' AND job.id = a.job_id AND review IN ('needs_review', 'needs_edit', 'held', 'approved')
        AND a.attempt = (SELECT max(attempt) FROM artifact WHERE artifact.job_id = job.id AND body IS NOT NULL)
) AS draft ON true
WHERE a.finished_at >= :since AND a.finished_at < :until
GROUP BY a.kind, a.outcome, a.reason
