-- Moves due jobs to 'dispatched', in planned order, as many as there is room for in Redis: its list is kept about
-- twice as long as what is in flight. The caller publishes what comes back, in that order. Of equal jobs those of an
-- earlier ten minutes go first: no source waits for ever behind fresh ones, and siblings of a batch stay together.
-- Whoever pauses the queue waits for a dispatch that has begun, and one that has not sees it: the lock, not the snapshot,
-- says whether the queue is paused.
WITH control AS (
    SELECT paused FROM queue_control WHERE name = 'default' FOR SHARE
), room AS (
    SELECT greatest(CAST(:min_depth AS bigint), 2 * count(*)) - :depth AS places FROM job WHERE state = 'running'
), due AS (
    SELECT id
    FROM job
    WHERE state = 'queued' AND NOT delayed AND not_before <= now() AND (deadline IS NULL OR deadline > now())
        AND NOT EXISTS (SELECT FROM control WHERE paused)
    ORDER BY priority DESC, deadline ASC NULLS LAST, date_bin('10 minutes', enqueued_at, 'epoch'), source_key, id
    LIMIT (SELECT greatest(places, 0) FROM room)
    FOR UPDATE SKIP LOCKED
), dispatched AS (
    UPDATE job
    SET state = 'dispatched', dispatch_no = dispatch_no + 1, dispatched_at = now()
    WHERE id = ANY(ARRAY(SELECT id FROM due))  -- a join might read all of a full queue: how many are due nobody can foresee
    RETURNING job.id, dispatch_no, priority, deadline, enqueued_at, source_key
)
SELECT id, dispatch_no FROM dispatched ORDER BY priority DESC, deadline ASC NULLS LAST, date_bin('10 minutes', enqueued_at, 'epoch'), source_key, id
