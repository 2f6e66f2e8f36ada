-- The history tables, and whether jobs that are enqueued tomorrow would have no partition of their own there.
SELECT parent AS name, NOT EXISTS (
    SELECT
    FROM pg_inherits
    WHERE inhparent = to_regclass(parent)
        AND inhrelid = to_regclass(parent || to_char((now() + interval '1 day') AT TIME ZONE 'UTC', '"_"YYYY"_"MM'))
) AS missing
FROM unnest(ARRAY['attempt', 'artifact', 'job_event']) AS parent
