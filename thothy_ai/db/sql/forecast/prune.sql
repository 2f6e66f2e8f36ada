-- Deletes forecasts that are older than so many days.
DELETE FROM forecast WHERE made_at < now() - make_interval(days => :days)
