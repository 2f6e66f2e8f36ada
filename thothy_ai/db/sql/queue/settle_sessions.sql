-- Settles engine sessions that have ended, once no job claimed for them runs: busy seconds that no attempt accounts for
-- are divided equally over the session's attempts without output and without recorded usage; if there are none, over
-- those without output, since a vanished worker knew of calls that had ended. Results that came after the last counters
-- prove busy time: a session was busy for at least what its attempts were billed.
-- What attempts of closed hours used is known from their closing; only those of the open hours are read again.
-- Usage that is added to closed hours restates them.
-- `ids`: what `queue/lock_sessions` has locked. Its snapshot would be older than usage that it waited for; a session that
-- ended since is settled next time.
WITH progress AS (
    SELECT closed_until FROM usage_progress WHERE name = 'default' FOR SHARE
), ended AS (
    SELECT id, busy_seconds AS busy, billed_seconds AS closed
    FROM engine_session
    WHERE id = ANY(CAST(:ids AS uuid[])) AND {unsettled} AND (SELECT closed_until FROM progress) IS NOT NULL
    ORDER BY id
    FOR NO KEY UPDATE
), recent AS (
    SELECT engine_session_id AS id, sum(compute_seconds) AS seconds
    FROM attempt
    WHERE finished_at >= (SELECT closed_until FROM progress) AND engine_session_id = ANY(ARRAY(SELECT id FROM ended))
        AND EXISTS (SELECT FROM ended)
    GROUP BY 1
), missing AS (
    SELECT engine_session_id AS id, count(*) AS attempts_without_output,
        count(*) FILTER (WHERE {unbilled}) AS unbilled_attempts
    FROM attempt
    WHERE {without_output} AND engine_session_id = ANY(ARRAY(SELECT id FROM ended))
    GROUP BY 1
), billed AS (
    SELECT id, busy, closed + coalesce(seconds, 0) AS seconds,
        coalesce(unbilled_attempts, 0) AS unbilled_attempts,
        coalesce(attempts_without_output, 0) AS attempts_without_output
    FROM ended LEFT JOIN recent USING (id) LEFT JOIN missing USING (id)
), divided AS (
    UPDATE attempt
    SET compute_seconds = compute_seconds
        + (busy - seconds) / coalesce(nullif(unbilled_attempts, 0), attempts_without_output)
    FROM billed
    WHERE engine_session_id = billed.id
        AND {without_output} AND (unbilled_attempts = 0 OR {unbilled}) AND busy > seconds
    RETURNING finished_at, tenant, kind, engine_session_id,
        (busy - seconds) / coalesce(nullif(unbilled_attempts, 0), attempts_without_output) AS added
), late AS (
    {late_usage} FROM divided WHERE finished_at < (SELECT closed_until FROM progress)
), restated AS (
    {restate}
)
UPDATE engine_session
SET settled_at = now(), busy_seconds = greatest(busy_seconds, seconds),
    billed_seconds = billed_seconds
        + coalesce((SELECT sum(added) FROM late WHERE late.engine_session_id = engine_session.id), 0)
FROM billed
WHERE engine_session.id = billed.id
RETURNING engine_session.id
