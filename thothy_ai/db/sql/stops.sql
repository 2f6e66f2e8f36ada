-- Which of a worker's jobs should not go on.
SELECT id, attempt, cancel_requested, coalesce(deadline <= now(), FALSE) AS expired
FROM job
WHERE state = 'running' AND worker = :worker AND (cancel_requested OR deadline <= now())
