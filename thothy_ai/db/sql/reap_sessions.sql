-- Closes the sessions of engines that no worker has heard of for a while. One that is heard again opens again.
UPDATE engine_session
SET ended_at = heartbeat_at
WHERE ended_at IS NULL AND heartbeat_at < now() - make_interval(secs => :silence_seconds)
RETURNING id
