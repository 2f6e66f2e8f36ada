-- Makes deliveries due now that are dead or wait for a retry: those with these ids, or all that are dead. They are tried
-- for a day again.
UPDATE webhook_delivery
SET dead_at = NULL, attempts = 0, next_attempt_at = now(), retry_until = now() + interval '1 day'
WHERE CASE WHEN CAST(:ids AS uuid[]) IS NULL THEN dead_at IS NOT NULL
    ELSE id = ANY (CAST(:ids AS uuid[])) AND delivered_at IS NULL END
RETURNING id
