-- The next hours to close, and keeps others from changing the usage of attempts meanwhile. No row: there are none. The
-- first one is that of the oldest attempt or engine. An hour stays open for another hour: by then, what ended in it is
-- committed, and most lost attempts are settled.
WITH progress AS (
    SELECT closed_until, date_trunc('hour', now()) - make_interval(hours => :open_hours) AS due
    FROM usage_progress
    WHERE name = 'default'
    FOR UPDATE
), next AS (
    SELECT due, CASE
        WHEN closed_until > '-infinity' THEN closed_until
        ELSE date_trunc('hour', least(
            (SELECT min(finished_at) FROM attempt), (SELECT min(started_at) FROM engine_session)
        ))
    END AS since
    FROM progress
)
SELECT since, least(since + make_interval(hours => :hours), due) AS until
FROM next
WHERE since < due
