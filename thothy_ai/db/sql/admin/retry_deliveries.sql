-- Makes deliveries due now that are dead or wait for a retry: those with these ids, or all that are dead; of a
-- tenant, or of all if it is NULL. They are tried for a day again.
UPDATE webhook_delivery
SET dead_at = NULL, attempts = 0, next_attempt_at = now(), retry_until = now() + interval '1 day'
WHERE CASE WHEN CAST(:ids AS uuid[]) IS NULL THEN dead_at IS NOT NULL
    ELSE id = ANY (CAST(:ids AS uuid[])) AND delivered_at IS NULL END
    AND (CAST(:tenant AS text) IS NULL OR tenant = CAST(:tenant AS text))
RETURNING id
