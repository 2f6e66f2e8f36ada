-- One file of a tenant; its content is NULL where it lies in the folder, or is not wanted.
SELECT id, purpose, name, size, created_at, expires_at, CASE WHEN :whole THEN content END AS content
FROM stored_file
WHERE id = :id AND tenant = :tenant AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at > now())
