-- The follow-ups of a job, in the order in which they were enqueued.
SELECT id, kind, state, attempt, reason, enqueued_at, finished_at
FROM job
WHERE parent_id = :job_id
ORDER BY id
