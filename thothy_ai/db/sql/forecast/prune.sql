-- Deletes forecasts that are older than `days` days.
DELETE FROM forecast WHERE made_at < now() - make_interval(days => :days)
