-- Dead jobs by kind and reason: how many, and when the first and the last of them died.
SELECT kind, reason, count(*) AS jobs, min(finished_at) AS first_died, max(finished_at) AS last_died
FROM job
WHERE state = 'dead'
    AND finished_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
    AND finished_at < coalesce(CAST(:until AS timestamptz), 'infinity')
    AND (CAST(:ids AS uuid[]) IS NULL OR id = ANY(CAST(:ids AS uuid[])))
    AND (CAST(:kinds AS text[]) IS NULL OR kind = ANY(CAST(:kinds AS text[])))
    AND (CAST(:reasons AS text[]) IS NULL OR reason = ANY(CAST(:reasons AS text[])))
GROUP BY kind, reason
ORDER BY jobs DESC, kind, reason
