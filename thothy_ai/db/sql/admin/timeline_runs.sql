-- Seconds from start to finish of the attempts that ended in the window; a kind of NULL is all kinds.
SELECT
    kind,
    count(*) AS number,
    percentile_cont(CAST(ARRAY[0.5, 0.9, 0.99] AS float8[])) WITHIN GROUP (
        ORDER BY greatest(0, extract(epoch FROM finished_at - started_at))
    ) AS seconds
FROM attempt
WHERE finished_at >= :since AND finished_at < :until
GROUP BY GROUPING SETS ((kind), ())
HAVING count(*) > 0
