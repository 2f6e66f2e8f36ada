-- Gives half of the jobs that have waited for engine `donor` for a second to `engine`, which has none: the last ones in
-- planned order, at most `limit`, of those that it may run. Their earlier messages are stale from now on. The caller
-- publishes the new ones.
WITH control AS (
    {locked_control}
), waiting AS (
    SELECT id, dispatch_no, model, priority, deadline, enqueued_at, scheduled_for, source_key
    FROM job
    WHERE state = 'dispatched' AND engine_name = :donor AND NOT cancel_requested
        AND dispatched_at < now() - interval '1 second'
), last AS (
    SELECT id, dispatch_no, priority, deadline, enqueued_at, scheduled_for, source_key
    FROM waiting
    WHERE (model IS NULL OR model = ANY(CAST(:serves AS text[]))) AND NOT {dispatch_stops}
    ORDER BY ({planned_order}) DESC
    LIMIT least(:limit, (SELECT (count(*) + 1) / 2 FROM waiting))
), taken AS (
    UPDATE job
    SET dispatch_no = job.dispatch_no + 1, dispatched_at = now(), engine_name = :engine
    WHERE id = ANY(ARRAY(
        SELECT id FROM job WHERE id = ANY(ARRAY(SELECT id FROM last)) AND state = 'dispatched' AND engine_name = :donor
        ORDER BY id
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING job.id, job.dispatch_no
)
SELECT taken.id, taken.dispatch_no, source_key
FROM taken JOIN last USING (id)
ORDER BY {planned_order}
