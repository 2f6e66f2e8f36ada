-- Ends one session of the console, or those of a key. A filter of NULL lets everything through.
UPDATE console_session
SET ended_at = now()
WHERE ended_at IS NULL
    AND (id = :id OR key_id = :key_id)
    AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
RETURNING id, name
