-- Whether a batch that asked for webhooks is open, and how many deliveries have waited for their first try for a
-- minute.
SELECT
    EXISTS (SELECT FROM batch WHERE ended_at IS NULL AND url IS NOT NULL) AS asked,
    (
        SELECT count(*)
        FROM webhook_delivery
        WHERE {undelivered} AND attempts = 0 AND created_at < now() - interval '60 seconds'
    ) AS untried
