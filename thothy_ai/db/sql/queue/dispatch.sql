-- Moves these due jobs to 'dispatched', for this engine; those that another transaction is changing, or that may no
-- longer run, are left out. The caller publishes the others. A pause waits for a dispatch that has begun; a dispatch
-- that begins later sees the pause: the row lock, not the snapshot, decides what is paused.
WITH control AS (
    {locked_control}
), next AS (
    SELECT id
    FROM job
    WHERE id = ANY(CAST(:ids AS uuid[])) AND {due} AND {not_paused} AND NOT {dispatch_stops}
    ORDER BY id
    FOR UPDATE SKIP LOCKED
)
UPDATE job
SET state = 'dispatched', dispatch_no = dispatch_no + 1, dispatched_at = now(), engine_name = :engine
-- Not a join: Postgres might read all of a full queue for it.
WHERE id = ANY(ARRAY(SELECT id FROM next))
RETURNING id, dispatch_no
