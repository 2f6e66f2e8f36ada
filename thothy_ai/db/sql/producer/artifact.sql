-- The accepted artifact of a job, of its own kind.
SELECT body
FROM artifact
WHERE job_id = :id AND kind = :kind AND verdict = 'accepted'
ORDER BY attempt DESC
LIMIT 1
