-- Which hours of the window are closed: from `first` to `last`, if any. What lies before and after is read from
-- attempts.
SELECT date_trunc('hour', CAST(:since AS timestamptz) + interval '1 hour' - interval '1 microsecond') AS first,
    least(date_trunc('hour', CAST(:until AS timestamptz)), greatest(closed_until, 'epoch')) AS last
FROM usage_progress
WHERE name = 'default'
