-- How many requests of batches that are under way have succeeded, and failed.
SELECT batch_id AS id, count(*) FILTER (WHERE state = 'succeeded') AS completed,
    count(*) FILTER (WHERE state = 'dead') AS failed
FROM job
WHERE batch_id = ANY(CAST(:ids AS uuid[])) AND batch_id IS NOT NULL AND tenant = :tenant
GROUP BY batch_id
