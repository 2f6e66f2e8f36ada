-- Of the jobs that finished in the window: how many produced output, and how many an accepted artifact.
SELECT kind, count(*) AS with_output, count(*) FILTER (WHERE accepted) AS with_artifact
FROM (
    SELECT j.id, j.kind, bool_or(a.verdict = 'accepted') AS accepted
    FROM job AS j
    JOIN artifact AS a ON a.job_id = j.id
    WHERE j.finished_at >= :since AND j.finished_at < :until
    GROUP BY j.id, j.kind
) AS produced
GROUP BY kind
