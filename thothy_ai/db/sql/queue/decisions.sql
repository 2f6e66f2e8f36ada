-- What people decided on the versions of a job's artifact, the first decision first.
SELECT version, action, decided_by, decided_at, note, voice
FROM decision
WHERE job_id = CAST(:id AS uuid) AND {of_tenant}
ORDER BY decided_at
