-- How jobs ended, each with its accepted artifact or the last rejected one.
SELECT job.id, idempotency_key, state, job.reason, detail, body
FROM job LEFT JOIN LATERAL (
    SELECT body
    FROM artifact
    WHERE job_id = job.id AND artifact.kind = job.kind
        AND verdict = CASE state WHEN 'succeeded' THEN 'accepted' ELSE 'rejected' END
    ORDER BY artifact.attempt DESC
    LIMIT 1
) AS judged ON state IN ('succeeded', 'dead')
WHERE job.id = ANY(CAST(:ids AS uuid[]))
ORDER BY job.id
