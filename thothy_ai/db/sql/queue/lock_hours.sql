-- The next hours to close, and keeps others from changing the usage of attempts meanwhile. No row: there are none yet.
-- An hour stays open for another hour: by then, what ended in it is committed, and most lost attempts are settled.
SELECT closed_until AS since, least(closed_until + make_interval(hours => :hours), due) AS until
FROM usage_progress, (
    SELECT date_trunc('hour', now()) - make_interval(hours => :open_hours) AS due
) AS target
WHERE name = 'default' AND closed_until < due
FOR UPDATE OF usage_progress
