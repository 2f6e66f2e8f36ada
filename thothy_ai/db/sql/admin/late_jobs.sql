-- Open jobs whose deadline has passed, or that could run before the last publishing time: those that are longest late,
-- and how many there are.
SELECT id, kind, state, due, count(*) OVER () AS jobs
FROM (
    SELECT id, kind, state, least(
        CASE WHEN deadline <= now() THEN deadline END,
        CASE
            WHEN greatest(enqueued_at, not_before) < CAST(:published AS timestamptz)
            THEN CAST(:published AS timestamptz)
        END
    ) AS due
    FROM job
    WHERE {open}
) AS late
WHERE due IS NOT NULL
ORDER BY due, id
LIMIT :limit
