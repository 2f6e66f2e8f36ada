-- Engines that take jobs, by the name of their model. `capacity`: sequences at once, 0 if an engine does not say.
SELECT model_name AS model, count(*) AS engines, min(capacity) AS capacity, sum(greatest(gpus, 1)) AS devices
FROM engine_session
WHERE ended_at IS NULL AND state = 'ready' AND heartbeat_at > now() - {engine_silence}
GROUP BY model_name
