-- The accepted artifact of a job, of its own kind. A tenant that is NULL stands for all.
SELECT body
FROM artifact
WHERE job_id = :id AND kind = :kind AND verdict = 'accepted' AND {of_tenant}
ORDER BY attempt DESC
LIMIT 1
