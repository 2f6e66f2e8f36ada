-- Locks dead jobs for the rest of the transaction, the earliest deaths first. Jobs that another operator has locked are
-- skipped.
SELECT id
FROM job
WHERE {selected_dead}
ORDER BY finished_at, id
LIMIT :limit
FOR UPDATE SKIP LOCKED
