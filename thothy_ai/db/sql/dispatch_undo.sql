-- Puts back what could not be published. Should a message have gone out all the same, its dispatch number fences it.
UPDATE job
SET state = 'queued'
FROM unnest(CAST(:ids AS uuid[]), CAST(:dispatch_nos AS integer[])) AS given (id, dispatch_no)
WHERE job.id = given.id AND job.dispatch_no = given.dispatch_no AND state = 'dispatched'
