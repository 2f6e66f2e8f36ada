-- Whether a job has follow-ups.
SELECT id FROM job WHERE parent_id = CAST(:id AS uuid) AND {of_tenant} LIMIT 1
