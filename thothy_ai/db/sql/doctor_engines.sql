-- Engines that have not ended, by how long ago each was heard of.
SELECT model, device, extract(epoch FROM now() - heartbeat_at)::float8 AS quiet
FROM engine_session
WHERE ended_at IS NULL
ORDER BY heartbeat_at DESC
