-- Jobs that count as running and were claimed since the machine started, `uptime` seconds ago, with their engine
-- sessions.
SELECT id, attempt, engine_session_id
FROM job
WHERE state = 'running' AND started_at > now() - make_interval(secs => :uptime)
