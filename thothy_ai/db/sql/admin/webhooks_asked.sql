-- Whether a batch that asked for webhooks is open, and how many deliveries nobody has tried for a minute.
SELECT
    EXISTS (SELECT FROM batch WHERE ended_at IS NULL) AS asked,
    (
        SELECT count(*)
        FROM webhook_delivery
        WHERE {undelivered} AND attempts = 0 AND created_at < now() - interval '1 minute'
    ) AS untried
