-- These jobs, as they are listed.
SELECT {listed_job}
FROM job
WHERE id = ANY(CAST(:ids AS uuid[]))
