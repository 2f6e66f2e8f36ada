-- Deletes the jobs of a month that ended before `before`, with their requests, at most `limit`. Their history is dropped with
-- the month's partitions.
WITH bounds AS (
    SELECT to_timestamp(CAST(:month AS text) || ' +00', 'YYYY_MM TZH') AT TIME ZONE 'UTC' AS month
)
DELETE FROM job
WHERE id = ANY(ARRAY(
    SELECT id
    FROM job
    WHERE id >= (SELECT thothy_uuid_floor(month AT TIME ZONE 'UTC') FROM bounds)
        AND id < (SELECT thothy_uuid_floor((month + interval '1 month') AT TIME ZONE 'UTC') FROM bounds)
        AND finished_at < :before
    ORDER BY id
    LIMIT :limit
))
RETURNING id
