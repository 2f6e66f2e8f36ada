-- The jobs of a call that asked for a webhook: so many were enqueued.
INSERT INTO batch (id, tenant, url, notify, jobs)
VALUES (CAST(:id AS uuid), :tenant, :url, :notify, :jobs)
