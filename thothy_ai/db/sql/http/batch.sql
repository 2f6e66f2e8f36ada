-- One batch of a tenant.
SELECT id, jobs, url AS webhook, created_at, ended_at
FROM batch
WHERE id = :id AND tenant = :tenant
