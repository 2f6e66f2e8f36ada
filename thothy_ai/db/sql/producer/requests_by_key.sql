-- The requests of the jobs that hold these idempotency keys.
SELECT idempotency_key, {whole_request}
FROM job JOIN job_request ON job_id = job.id
WHERE tenant = :tenant AND idempotency_key = ANY (CAST(:keys AS text[]))
