-- How many deliveries there are, by state.
SELECT {delivery_state} AS state, count(*) AS deliveries
FROM webhook_delivery
GROUP BY 1
