-- A job's events, the oldest first.
SELECT job_id, at, event, detail
FROM job_event
WHERE job_id = :job_id
ORDER BY at
