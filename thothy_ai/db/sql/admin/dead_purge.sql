-- Deletes dead jobs with their requests and their history. The caller has locked them in this transaction.
-- The ids are an array in every part: each partition of the history is searched by its index.
WITH purged AS (
    DELETE FROM job WHERE id = ANY(CAST(:ids AS uuid[])) AND state = 'dead' RETURNING id
), attempts AS (
    DELETE FROM attempt WHERE job_id = ANY(CAST(:ids AS uuid[]))
), artifacts AS (
    DELETE FROM artifact WHERE job_id = ANY(CAST(:ids AS uuid[]))
), events AS (
    DELETE FROM job_event WHERE job_id = ANY(CAST(:ids AS uuid[]))
)
SELECT id FROM purged
