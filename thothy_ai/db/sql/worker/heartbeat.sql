-- Extends the leases of a worker's jobs. A job that is not returned has been given to another attempt.
WITH given AS (
    SELECT id, attempt FROM unnest(CAST(:ids AS uuid[]), CAST(:attempts AS integer[])) AS claim (id, attempt)
), held AS (
    SELECT job.id
    FROM job JOIN given USING (id, attempt)
    WHERE state = 'running' AND worker = :worker
    ORDER BY job.id
    FOR UPDATE OF job
)
UPDATE job
SET lease_until = now() + make_interval(secs => :lease_seconds)
FROM held
WHERE job.id = held.id
RETURNING job.id, attempt, cancel_requested, coalesce(deadline <= now(), FALSE) AS expired
