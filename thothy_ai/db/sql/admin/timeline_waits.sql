-- Seconds until the first start, of the jobs whose first attempt ended in the window; a kind of NULL is all kinds.
-- A retry replaces not_before: where it is later than the first start, the wait began when the job was enqueued.
SELECT
    j.kind,
    count(*) AS number,
    percentile_cont(CAST(ARRAY[0.5, 0.9, 0.99] AS float8[])) WITHIN GROUP (
        ORDER BY greatest(0, extract(epoch FROM a.started_at - CASE
            WHEN j.not_before <= a.started_at THEN greatest(j.enqueued_at, j.not_before)
            ELSE j.enqueued_at
        END))
    ) AS seconds
FROM attempt AS a
JOIN job AS j ON j.id = a.job_id
WHERE a.attempt = 1 AND a.finished_at >= :since AND a.finished_at < :until
GROUP BY GROUPING SETS ((j.kind), ())
HAVING count(*) > 0
