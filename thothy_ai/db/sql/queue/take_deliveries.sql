-- Takes deliveries that are due: a few of each origin, the longest due first, and none of an origin that is busy, so
-- that one that does not answer holds up no other. They are due again after the lease if nothing is recorded.
WITH RECURSIVE origins AS (
    (SELECT origin FROM webhook_delivery WHERE {undelivered} ORDER BY origin LIMIT 1)
    UNION ALL
    SELECT (
        SELECT later.origin
        FROM webhook_delivery AS later
        WHERE {undelivered} AND later.origin > origins.origin
        ORDER BY later.origin
        LIMIT 1
    )
    FROM origins
    WHERE origins.origin IS NOT NULL
), due AS (
    SELECT first.id
    FROM origins CROSS JOIN LATERAL (
        SELECT id, next_attempt_at
        FROM webhook_delivery
        WHERE {undelivered} AND webhook_delivery.origin = origins.origin AND next_attempt_at <= now()
        ORDER BY next_attempt_at
        LIMIT :per_origin
    ) AS first
    WHERE origins.origin IS NOT NULL AND NOT origins.origin = ANY (CAST(:busy AS text[]))
    ORDER BY first.next_attempt_at
    LIMIT :limit
)
UPDATE webhook_delivery
SET attempts = attempts + 1, next_attempt_at = now() + make_interval(secs => :lease_seconds)
WHERE id = ANY(ARRAY(SELECT id FROM due)) AND {undelivered}
RETURNING id, tenant, url, origin, payload, attempts
