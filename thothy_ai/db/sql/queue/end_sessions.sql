-- Ends the sessions of engines that have been silent for `silence_seconds`, at their last heartbeat.
-- A later heartbeat opens the session again.
WITH silent AS (
    SELECT id
    FROM engine_session
    WHERE ended_at IS NULL AND heartbeat_at < now() - make_interval(secs => :silence_seconds)
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE engine_session
SET ended_at = heartbeat_at, state = 'ended', end_reason = 'silent'
WHERE id = ANY(ARRAY(SELECT id FROM silent))
RETURNING id, engine_name
