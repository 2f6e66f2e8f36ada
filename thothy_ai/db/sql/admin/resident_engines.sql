-- How many engines are resident: their workers have heard from them recently.
SELECT count(*) FROM engine_session WHERE ended_at IS NULL AND heartbeat_at > now() - {engine_silence}
