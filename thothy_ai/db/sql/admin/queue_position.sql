-- How many due jobs that name the same model, or none as well, are dispatched before this one; NULL if more than
-- `limit` are. Reads that many rows of the index.
WITH wanted AS (
    SELECT model FROM job WHERE id = :id
), next AS (
    (
        SELECT id
        FROM job
        WHERE state = 'queued' AND NOT delayed AND model IS NULL AND EXISTS (SELECT FROM wanted WHERE model IS NULL)
        ORDER BY {planned_order}
        LIMIT :limit + 1
    )
    UNION ALL
    (
        SELECT id
        FROM job
        WHERE state = 'queued' AND NOT delayed AND model = (SELECT model FROM wanted)
        ORDER BY {planned_order}
        LIMIT :limit + 1
    )
), numbered AS (
    SELECT id, row_number() OVER () AS place FROM next
)
SELECT place - 1 AS ahead
FROM numbered
WHERE id = :id
