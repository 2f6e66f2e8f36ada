-- Where the engines of a machine listen that are ready.
SELECT address
FROM engine_session
WHERE ended_at IS NULL AND machine = :machine AND state = 'ready' AND heartbeat_at > now() - {engine_silence}
ORDER BY engine_name
