-- A tenant's files in the order of their ids, which begin with their time. NULL for `purpose` stands for any.
SELECT id, purpose, name, size, created_at, expires_at
FROM stored_file
WHERE tenant = :tenant AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at > now())
    AND (CAST(:purpose AS text) IS NULL OR purpose = :purpose)
    AND (CAST(:after AS uuid) IS NULL OR CASE WHEN :ascending THEN id > :after ELSE id < :after END)
ORDER BY CASE WHEN :ascending THEN id END, id DESC
LIMIT :limit
