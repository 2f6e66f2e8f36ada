-- Whether a delivery waits.
SELECT EXISTS (SELECT FROM webhook_delivery WHERE {undelivered}) AS waiting
