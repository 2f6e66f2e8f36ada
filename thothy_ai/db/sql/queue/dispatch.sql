-- Moves due jobs to 'dispatched', in planned order, as many as Redis has room for: its list is kept about twice as long
-- as the number of jobs in flight. The caller publishes the returned jobs, in that order.
-- Pausing the queue waits for a dispatch that has begun; a dispatch that begins later sees the pause: the row lock, not
-- the snapshot, decides whether the queue is paused.
WITH control AS (
    SELECT paused FROM queue_control WHERE name = 'default' FOR SHARE
), room AS (
    SELECT greatest(CAST(:min_depth AS bigint), 2 * count(*)) - :depth AS places FROM job WHERE state = 'running'
), due AS (
    SELECT id
    FROM job
    WHERE state = 'queued' AND NOT delayed AND not_before <= now() AND {not_expired}
        AND NOT EXISTS (SELECT FROM control WHERE paused)
    ORDER BY {planned_order}
    LIMIT (SELECT greatest(places, 0) FROM room)
    FOR UPDATE SKIP LOCKED
), dispatched AS (
    UPDATE job
    SET state = 'dispatched', dispatch_no = dispatch_no + 1, dispatched_at = now()
    -- Not a join: Postgres cannot estimate how many jobs are due, and might read all of a full queue for it.
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING job.id, dispatch_no, priority, deadline, enqueued_at, source_key
)
SELECT id, dispatch_no FROM dispatched ORDER BY {planned_order}
