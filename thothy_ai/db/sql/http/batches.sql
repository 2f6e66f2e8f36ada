-- A tenant's batches, the newest first.
SELECT id, jobs, url AS webhook, created_at, ended_at
FROM batch
WHERE tenant = :tenant AND (CAST(:after AS uuid) IS NULL OR id < :after)
ORDER BY id DESC
LIMIT :limit
