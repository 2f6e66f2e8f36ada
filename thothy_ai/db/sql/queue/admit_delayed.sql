-- Admits delayed jobs to the queue shortly before they may run, the earliest first. Until then they are in no index
-- that the dispatcher reads: a million jobs for tonight cost nothing this afternoon.
UPDATE job
SET delayed = false
WHERE id = ANY(ARRAY(
    SELECT id
    FROM job
    WHERE state = 'queued' AND delayed AND not_before <= now() + {delay_margin}
    ORDER BY not_before
    LIMIT :limit
    FOR UPDATE SKIP LOCKED
))
