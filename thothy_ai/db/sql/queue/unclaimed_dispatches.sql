-- Dispatched jobs that no worker has claimed in time, with the engine that each was sent to. Those whose message is not
-- in Redis are lost.
SELECT id, dispatch_no, engine_name
FROM job
WHERE state = 'dispatched' AND dispatched_at < now() - make_interval(secs => :timeout_seconds)
