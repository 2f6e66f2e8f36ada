-- Puts delayed jobs among the others shortly before they may run, those first that may run first. Until then they stand
-- in no index that dispatching reads: a million jobs for tonight cost the afternoon nothing.
UPDATE job
SET delayed = false
WHERE id = ANY(ARRAY(
    SELECT id
    FROM job
    WHERE state = 'queued' AND delayed AND not_before <= now() + interval '1 minute'
    ORDER BY not_before
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
))
