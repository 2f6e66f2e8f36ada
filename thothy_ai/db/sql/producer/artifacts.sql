-- The artifacts of several jobs, each as `producer/artifact` finds it.
SELECT job.id AS job_id, coalesce(edited.body, written.body) AS body
FROM job
LEFT JOIN artifact_version AS edited ON edited.job_id = job.id AND edited.version = job.version AND review = 'approved'
LEFT JOIN LATERAL (
    SELECT artifact.body
    FROM artifact
    WHERE artifact.job_id = job.id AND artifact.kind = job.kind AND (verdict = 'accepted' OR job.review = 'approved')
    ORDER BY verdict, artifact.body IS NULL, artifact.attempt DESC
    LIMIT 1
) AS written ON true
WHERE job.id = ANY(CAST(:ids AS uuid[])) AND job.tenant = coalesce(CAST(:tenant AS text), job.tenant)
