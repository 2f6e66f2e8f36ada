-- From now on the file does not exist for its tenant; it is removed once no batch reads it any more.
UPDATE stored_file
SET deleted_at = now()
WHERE id = :id AND tenant = :tenant AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at > now())
RETURNING id
