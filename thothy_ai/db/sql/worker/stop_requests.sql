-- Which of a worker's running jobs are to be stopped.
SELECT id, attempt, cancel_requested, coalesce(deadline <= now(), FALSE) AS expired
FROM job
WHERE state = 'running' AND worker = :worker AND (cancel_requested OR deadline <= now())
