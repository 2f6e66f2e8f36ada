-- Looks at the next jobs of a month after the one with the id `after`, at most `limit`: how many they are, the last
-- one's id, and whether any keeps the month: it is open, ended at `before` or later, or in an hour that the bill has
-- not closed yet.
WITH bounds AS (
    SELECT to_timestamp(CAST(:month AS text) || ' +00', 'YYYY_MM TZH') AT TIME ZONE 'UTC' AS month
), next AS (
    SELECT id, finished_at
    FROM job
    WHERE id > CAST(:after AS uuid)
        AND id >= (SELECT thothy_uuid_floor(month AT TIME ZONE 'UTC') FROM bounds)
        AND id < (SELECT thothy_uuid_floor((month + interval '1 month') AT TIME ZONE 'UTC') FROM bounds)
    ORDER BY id
    LIMIT :limit
)
SELECT count(*) AS jobs, max(CAST(id AS text)) AS last, coalesce(bool_or(
    finished_at IS NULL OR finished_at >= least(
        CAST(:before AS timestamptz), (SELECT closed_until FROM usage_progress WHERE name = 'default')
    )
), false) AS kept
FROM next
