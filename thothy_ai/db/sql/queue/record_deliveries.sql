-- Records how attempts to deliver ended. One that failed is due again after its delay, unless it is too late then.
WITH given AS (
    SELECT *
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:delivered AS boolean[]), CAST(:gone AS boolean[]), CAST(:statuses AS integer[]),
        CAST(:errors AS text[]), CAST(:delays AS float8[])
    ) AS given (id, delivered, gone, answer, problem, delay)
)
UPDATE webhook_delivery
SET delivered_at = CASE WHEN delivered THEN now() END,
    dead_at = CASE WHEN NOT delivered AND (gone OR now() + make_interval(secs => delay) > retry_until) THEN now() END,
    next_attempt_at = now() + make_interval(secs => delay), status = answer, error = problem
FROM given
WHERE webhook_delivery.id = given.id AND {undelivered}
RETURNING webhook_delivery.id, url, attempts, error, {delivery_state} AS state
