-- The engines that have reported within a day.
SELECT DISTINCT engine_name FROM engine_session WHERE heartbeat_at > now() - interval '1 day' ORDER BY engine_name
