-- What was learnt, the latest forecast, and how old it is in seconds.
SELECT learnt, latest, extract(epoch FROM now() - changed_at)::float8 AS age
FROM forecast_state
WHERE name = 'default'
