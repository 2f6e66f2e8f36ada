-- How many deliveries there are, by state; of all tenants if `:tenant` is NULL.
SELECT {delivery_state} AS state, count(*) AS deliveries
FROM webhook_delivery
WHERE CAST(:tenant AS text) IS NULL OR tenant = CAST(:tenant AS text)
GROUP BY 1
