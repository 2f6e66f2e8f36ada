-- Says that a worker still has these messages and waits for its engine: they are not lost.
UPDATE job
SET dispatched_at = now()
FROM unnest(CAST(:ids AS uuid[]), CAST(:dispatch_nos AS integer[])) AS given (id, dispatch_no)
WHERE job.id = given.id AND job.dispatch_no = given.dispatch_no AND state = 'dispatched'
