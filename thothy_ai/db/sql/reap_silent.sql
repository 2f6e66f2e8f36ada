-- Dispatched jobs that nobody has claimed for too long. Those whose message is not in Redis are lost.
SELECT id, dispatch_no
FROM job
WHERE state = 'dispatched' AND dispatched_at < now() - make_interval(secs => :timeout_seconds)
