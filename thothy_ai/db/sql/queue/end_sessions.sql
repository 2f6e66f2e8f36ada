-- Ends the sessions of engines that have been silent for too long, or for so many seconds, at their last heartbeat.
-- A later heartbeat opens the session again.
UPDATE engine_session
SET ended_at = heartbeat_at, state = 'ended', end_reason = 'silent'
WHERE ended_at IS NULL AND heartbeat_at < now() - least({engine_silence}, make_interval(secs => :silence_seconds))
RETURNING id, engine_name
