-- The months of history that were over at `before`, the oldest first. Only the catalogue is read.
SELECT name
FROM (
    SELECT substr(relname, 9) AS name
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'attempt'::regclass AND relname ~ '^attempt_\d{4}_\d{2}$'
    UNION
    SELECT substr(relname, 11)
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'job_event'::regclass AND relname ~ '^job_event_\d{4}_\d{2}$'
) AS months
WHERE (to_date(name, 'YYYY_MM') + interval '1 month') AT TIME ZONE 'UTC' <= :before
ORDER BY name
