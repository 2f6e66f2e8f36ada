-- The jobs that hold these idempotency keys.
SELECT idempotency_key, CAST(id AS text) AS id, request_digest AS digest
FROM job
WHERE tenant = :tenant AND idempotency_key = ANY (CAST(:keys AS text[]))
