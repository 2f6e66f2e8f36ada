-- How many other jobs run, in any worker.
SELECT count(*) AS jobs
FROM job
WHERE state = 'running' AND id <> CAST(:id AS uuid)
