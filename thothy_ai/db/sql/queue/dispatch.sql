-- Moves due jobs to 'dispatched', in planned order, as many as Redis has room for: its list is kept about twice as long
-- as the number of jobs in flight. The caller publishes the returned jobs, in that order.
-- A job is urgent while one of lower priority is dispatched or running: it must not wait behind that one. Urgent jobs
-- have a list and a limit of their own, and never go into the other list.
-- Pausing the queue waits for a dispatch that has begun; a dispatch that begins later sees the pause: the row lock, not
-- the snapshot, decides whether the queue is paused.
WITH control AS (
    SELECT paused FROM queue_control WHERE name = 'default' FOR SHARE
), room AS (
    SELECT greatest(CAST(:min_depth AS bigint), 2 * count(*)) - :depth AS places,
        CAST(:urgent_places AS bigint) AS urgent_places,
        least(min(priority), (SELECT min(priority) FROM job WHERE state = 'dispatched')) AS lowest
    FROM job
    WHERE state = 'running'
), next AS (
    SELECT id, coalesce(priority > (SELECT lowest FROM room), false) AS urgent
    FROM job
    WHERE state = 'queued' AND NOT delayed AND not_before <= now() AND {not_expired}
        AND NOT EXISTS (SELECT FROM control WHERE paused)
    ORDER BY {planned_order}
    LIMIT (SELECT greatest(places, urgent_places, 0) FROM room)
    FOR UPDATE SKIP LOCKED
), due AS (
    (SELECT id FROM next WHERE urgent LIMIT (SELECT greatest(urgent_places, 0) FROM room))
    UNION ALL
    (SELECT id FROM next WHERE NOT urgent LIMIT (SELECT greatest(places, 0) FROM room))
), dispatched AS (
    UPDATE job
    SET state = 'dispatched', dispatch_no = dispatch_no + 1, dispatched_at = now()
    -- Not a join: Postgres cannot estimate how many jobs are due, and might read all of a full queue for it.
    WHERE id = ANY(ARRAY(SELECT id FROM due))
    RETURNING job.id, dispatch_no, priority, deadline, enqueued_at, scheduled_for, source_key
)
SELECT id, dispatch_no, coalesce(priority > (SELECT lowest FROM room), false) AS urgent
FROM dispatched
ORDER BY {planned_order}
