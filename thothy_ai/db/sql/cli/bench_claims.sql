-- Seconds from enqueueing to the first claim, over the jobs enqueued since then.
SELECT CAST(min(wait) AS double precision) AS first,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY wait) AS median,
    CAST(max(wait) AS double precision) AS last
FROM (
    SELECT extract(epoch FROM min(attempt.started_at) - min(job.enqueued_at)) AS wait
    FROM job JOIN attempt ON attempt.job_id = job.id
    WHERE job.enqueued_at >= :since
    GROUP BY job.id
) AS waits
