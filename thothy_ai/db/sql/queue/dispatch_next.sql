-- As `queue/due` and `queue/dispatch` in one round trip, where there is one engine: dispatches the next due jobs to it,
-- at most `places` of them, and `urgent_places` of those above the priority `lowest`. Returns them in planned order,
-- with their sources.
WITH control AS (
    {locked_control}
), next AS ({next_due}), numbered AS (
    SELECT id, source_key, urgent, row_number() OVER (PARTITION BY urgent ORDER BY {planned_order}) AS place
    FROM (SELECT *, coalesce(priority > CAST(:lowest AS smallint), false) AS urgent FROM next) AS rated
), placed AS (
    SELECT id, source_key, urgent, place
    FROM numbered
    WHERE place <= CASE WHEN urgent THEN CAST(:urgent_places AS bigint) ELSE CAST(:places AS bigint) END
), locked AS (
    SELECT id
    FROM job
    WHERE id = ANY(ARRAY(SELECT id FROM placed)) AND {due} AND {not_paused} AND NOT {dispatch_stops}
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), sent AS (
    UPDATE job
    SET state = 'dispatched', dispatch_no = dispatch_no + 1, dispatched_at = now(), engine_name = :engine
    WHERE id = ANY(ARRAY(SELECT id FROM locked))
    RETURNING id, dispatch_no
)
SELECT id, dispatch_no, source_key, urgent
FROM sent JOIN placed USING (id)
ORDER BY place
