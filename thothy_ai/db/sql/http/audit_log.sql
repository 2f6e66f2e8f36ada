-- Changes that people made in the console, the newest first.
SELECT id, at, name, tenant, action, target, before, after
FROM audit_log
WHERE (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
    AND (CAST(:after_id AS uuid) IS NULL OR id < :after_id)
ORDER BY id DESC
LIMIT :limit
