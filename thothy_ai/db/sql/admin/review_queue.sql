-- Jobs whose artifacts wait for a person, those with the earliest deadline first. With `clean_since`, also those that
-- ended since then, and in which no check found anything. A filter that is NULL lets everything through.
SELECT job_id, kind, tenant, review, version, deadline, finished_at, idempotency_key
FROM (
    SELECT id AS job_id, kind, tenant, review, version, deadline, finished_at, idempotency_key
    FROM job
    WHERE {undecided} AND review = ANY(CAST(:reviews AS text[]))
    UNION ALL
    SELECT id, kind, tenant, 'clean', version, deadline, finished_at, idempotency_key
    FROM job
    WHERE finished_at >= CAST(:clean_since AS timestamptz) AND state = 'succeeded' AND review IS NULL
) AS waiting
WHERE (CAST(:kind AS text) IS NULL OR kind = :kind) AND {of_tenant}
ORDER BY deadline, finished_at, job_id
LIMIT :limit
