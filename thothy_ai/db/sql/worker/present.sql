-- A worker reaches the engine of this session: jobs may be sent there. Its connection is seen, too (`admin/processes`).
-- Returns the session, unless it is not recorded yet.
UPDATE engine_session SET worker_heartbeat_at = now() WHERE id = CAST(:session_id AS uuid) RETURNING id
