-- Months of history that were over at `before`, the oldest first: their jobs, how many of those are open, ended later
-- or in an hour that the bill has not closed yet, and the bytes of their partitions.
SELECT name, count(job.id) AS jobs,
    count(job.id) FILTER (WHERE finished_at IS NULL OR finished_at >= least(
        CAST(:before AS timestamptz), (SELECT closed_until FROM usage_progress WHERE name = 'default')
    )) AS kept,
    (
        SELECT coalesce(sum(pg_total_relation_size(to_regclass(parent || '_' || name))), 0)::bigint
        FROM unnest(ARRAY['attempt', 'artifact', 'job_event']) AS parent
    ) AS size
FROM (
    SELECT substr(relname, 9) AS name, to_timestamp(substr(relname, 9) || ' +00', 'YYYY_MM TZH') AS month
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'attempt'::regclass AND relname ~ '^attempt_\d{4}_\d{2}$'
    UNION
    SELECT substr(relname, 11), to_timestamp(substr(relname, 11) || ' +00', 'YYYY_MM TZH')
    FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
    WHERE inhparent = 'job_event'::regclass AND relname ~ '^job_event_\d{4}_\d{2}$'
) AS partitions
LEFT JOIN job ON id >= thothy_uuid_floor(month)
    AND id < thothy_uuid_floor((month AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC')
WHERE (month AT TIME ZONE 'UTC' + interval '1 month') AT TIME ZONE 'UTC' <= :before
GROUP BY name
ORDER BY name
