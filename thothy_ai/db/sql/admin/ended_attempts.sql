-- The attempts of a job after a given one, in order.
SELECT attempt, outcome, reason, detail, prompt_tokens, cached_tokens, output_tokens, compute_seconds,
    started_at, finished_at
FROM attempt
WHERE job_id = :id AND attempt > :after
ORDER BY attempt
