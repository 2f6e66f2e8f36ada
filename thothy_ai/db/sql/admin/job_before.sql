-- The job that has so many newer ones up to the given one; none if there are fewer.
SELECT id
FROM job
WHERE (CAST(:after AS uuid) IS NULL OR id < :after)
ORDER BY id DESC
OFFSET :jobs
LIMIT 1
