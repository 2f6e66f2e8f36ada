-- The names of the engines that have sent a heartbeat recently, whether or not they have ended since.
SELECT DISTINCT engine_name FROM engine_session WHERE {heard_of}
