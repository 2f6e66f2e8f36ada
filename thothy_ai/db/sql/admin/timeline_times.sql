-- Percentiles of waits and runs, as of `timeline_waits` and `timeline_runs`, by bin of time.
SELECT
    floor(extract(epoch FROM a.finished_at - CAST(:origin AS timestamptz)) / :step)::integer AS bin,
    percentile_cont(CAST(ARRAY[0.5, 0.9, 0.99] AS float8[])) WITHIN GROUP (
        ORDER BY greatest(0, extract(epoch FROM a.started_at - CASE
            WHEN j.not_before <= a.started_at THEN greatest(j.enqueued_at, j.not_before)
            ELSE j.enqueued_at
        END))
    ) FILTER (WHERE a.attempt = 1 AND j.id IS NOT NULL) AS waits,
    count(*) FILTER (WHERE a.attempt = 1 AND j.id IS NOT NULL) AS waited,
    percentile_cont(CAST(ARRAY[0.5, 0.9, 0.99] AS float8[])) WITHIN GROUP (
        ORDER BY greatest(0, extract(epoch FROM a.finished_at - a.started_at))
    ) AS runs,
    count(*) AS ran
FROM attempt AS a
LEFT JOIN job AS j ON j.id = a.job_id
WHERE a.finished_at >= :since AND a.finished_at < :until
GROUP BY 1
