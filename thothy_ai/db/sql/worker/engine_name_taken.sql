-- Another session, not silent, of an engine with this name.
SELECT id, machine, address, heartbeat_at
FROM engine_session
WHERE engine_name = :name AND id <> CAST(:id AS uuid) AND ended_at IS NULL AND heartbeat_at > now() - {engine_silence}
ORDER BY heartbeat_at DESC
LIMIT 1
