-- When the oldest job was enqueued that is due or runs; NULL if there is none.
SELECT min(enqueued_at) AS enqueued_at
FROM job
WHERE (state = 'queued' AND NOT delayed) OR state IN ('dispatched', 'running')
