-- How many due jobs are dispatched before this one; NULL if more than `limit` are. Reads that many rows of the index.
SELECT place - 1 AS ahead
FROM (
    SELECT id, row_number() OVER () AS place
    FROM (
        SELECT id
        FROM job
        WHERE state = 'queued' AND NOT delayed
        ORDER BY {planned_order}
        LIMIT :limit + 1
    ) AS next
) AS numbered
WHERE id = :id
