-- Ends the sessions of engines without a recent heartbeat. A later heartbeat reopens the session.
UPDATE engine_session
SET ended_at = heartbeat_at
WHERE ended_at IS NULL AND heartbeat_at < now() - make_interval(secs => :silence_seconds)
RETURNING id
