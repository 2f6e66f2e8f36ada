-- How many jobs run beside this one.
SELECT count(*) AS jobs
FROM job
WHERE state = 'running' AND id <> CAST(:id AS uuid)
