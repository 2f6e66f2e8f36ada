-- Of the jobs that finished in the window: how many produced output, an artifact that no gate is against, and one without
-- findings either; and on how many a person has decided, and how many approved.
SELECT kind, count(*) AS with_output, count(*) FILTER (WHERE accepted) AS with_artifact,
    count(*) FILTER (WHERE clean) AS clean, count(*) FILTER (WHERE review IN ('approved', 'rejected')) AS decided,
    count(*) FILTER (WHERE review = 'approved') AS approved
FROM (
    SELECT j.id, j.kind, j.review, bool_or(a.verdict = 'accepted') AS accepted,
        bool_or(a.verdict = 'accepted' AND a.findings = '[]') AS clean
    FROM job AS j
    JOIN artifact AS a ON a.job_id = j.id
    WHERE j.finished_at >= :since AND j.finished_at < :until
    GROUP BY j.id, j.kind, j.review
) AS produced
GROUP BY kind
