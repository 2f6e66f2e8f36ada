-- Deletes the jobs of a month that ended before `before`, with their requests, at most `limit`. Their history is
-- dropped with the month's partitions. What came of them, and the seconds of drafts, are summed into their hours.
WITH bounds AS (
    SELECT to_timestamp(CAST(:month AS text) || ' +00', 'YYYY_MM TZH') AT TIME ZONE 'UTC' AS month
), doomed AS (
    SELECT id
    FROM job
    WHERE id >= (SELECT thothy_uuid_floor(month AT TIME ZONE 'UTC') FROM bounds)
        AND id < (SELECT thothy_uuid_floor((month + interval '1 month') AT TIME ZONE 'UTC') FROM bounds)
        AND finished_at < :before
    ORDER BY id
    LIMIT :limit
), known AS (
    {yields_of_doomed}
), summed AS (
    INSERT INTO usage_by_hour (hour, tenant, kind, model_name, adapter, {usage_sums})
    SELECT hour, tenant, kind, model_name, adapter, {summed_usage}
    FROM known
    GROUP BY hour, tenant, kind, model_name, adapter
    ORDER BY hour, tenant, kind, model_name, adapter
    {add_usage}
)
DELETE FROM job WHERE id = ANY(ARRAY(SELECT id FROM doomed)) RETURNING id
