-- Those of these jobs that are the tenant's.
SELECT id FROM job WHERE id = ANY(CAST(:ids AS uuid[])) AND tenant = :tenant
