-- Attempts at the jobs enqueued since then, by outcome and reason.
SELECT attempt.outcome || coalesce(' (' || attempt.reason || ')', '') AS outcome, count(*) AS attempts
FROM job JOIN attempt ON attempt.job_id = job.id
WHERE job.enqueued_at >= :since
GROUP BY 1
