-- In which states the jobs of batches are.
SELECT batch_id, state, count(*) AS jobs
FROM job
WHERE batch_id = ANY(CAST(:ids AS uuid[])) AND batch_id IS NOT NULL AND tenant = :tenant
GROUP BY batch_id, state
