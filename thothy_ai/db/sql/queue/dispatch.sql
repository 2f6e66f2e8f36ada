-- Moves these due jobs to 'dispatched', for this engine; those that another transaction is changing, or that may no longer
-- run, are left out. The caller publishes the others.
-- Pausing the queue waits for a dispatch that has begun; a dispatch that begins later sees the pause: the row lock, not
-- the snapshot, decides whether the queue is paused.
WITH control AS (
    SELECT paused FROM queue_control WHERE name = 'default' FOR SHARE
), next AS (
    SELECT id
    FROM job
    WHERE id = ANY(CAST(:ids AS uuid[])) AND {due} AND NOT EXISTS (SELECT FROM control WHERE paused)
    ORDER BY id
    FOR UPDATE SKIP LOCKED
)
UPDATE job
SET state = 'dispatched', dispatch_no = dispatch_no + 1, dispatched_at = now(), engine_name = :engine
-- Not a join: Postgres might read all of a full queue for it.
WHERE id = ANY(ARRAY(SELECT id FROM next))
RETURNING id, dispatch_no
