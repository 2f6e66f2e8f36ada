-- Settles engine sessions that have ended, once no job claimed for them runs: busy seconds for which neither an attempt
-- nor a request past the queue accounts are divided over the session's attempts without output and without recorded
-- usage; if there are none, over those without output, since a vanished worker knew of calls that had ended. Each gets
-- as much as the others, but no attempt more than the time that it ran: what is left then stays unattributed. Results
-- that came after the last counters prove busy time: a session was busy for at least what its attempts were billed.
-- What attempts of closed hours used is known from their closing; only those of the open hours are read again. Usage
-- that is added to closed hours restates them. `ids`: what `queue/lock_sessions` has locked. Its snapshot would be
-- older than usage that it waited for; a session that ended since is settled next time.
WITH progress AS (
    SELECT closed_until FROM usage_progress WHERE name = 'default' FOR SHARE
), ended AS (
    SELECT id, busy_seconds - direct_seconds AS busy, billed_seconds AS closed
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
), billed AS (
    SELECT id, busy, closed + coalesce(seconds, 0) AS seconds FROM ended LEFT JOIN recent USING (id)
), takers AS (
    SELECT job_id, attempt AS number, engine_session_id AS id, {unbilled} AS is_unbilled,
        bool_or({unbilled}) OVER (PARTITION BY engine_session_id) AS any_unbilled,
        greatest(0, extract(epoch FROM finished_at - started_at) - compute_seconds)::float8 AS room
    FROM attempt
    WHERE {without_output} AND engine_session_id = ANY(ARRAY(SELECT id FROM ended))
), ranked AS (
    SELECT job_id, number, room, busy - seconds AS missing,
        id, count(*) OVER (PARTITION BY id) - row_number() OVER smallest + 1 AS remaining,
        sum(room) OVER smallest - room AS taken
    FROM takers JOIN billed USING (id)
    WHERE (is_unbilled OR NOT any_unbilled) AND busy > seconds
    WINDOW smallest AS (PARTITION BY id ORDER BY room, job_id, number ROWS UNBOUNDED PRECEDING)
), shares AS (
    -- Those with less room than an equal share leave the rest to the others, whose shares grow: the largest one counts.
    SELECT job_id, number, least(room, max((missing - taken) / remaining) OVER (PARTITION BY id)) AS added
    FROM ranked
), divided AS (
    UPDATE attempt
    SET compute_seconds = compute_seconds + added
    FROM shares
    WHERE attempt.job_id = shares.job_id AND attempt.attempt = shares.number
    RETURNING finished_at, tenant, kind, engine_session_id, adapter, added
), late AS (
    {late_usage} FROM divided WHERE finished_at < (SELECT closed_until FROM progress)
), restated AS (
    {restate}
)
UPDATE engine_session
SET settled_at = now(), busy_seconds = greatest(busy_seconds, direct_seconds + seconds),
    billed_seconds = billed_seconds
        + coalesce((SELECT sum(added) FROM late WHERE late.engine_session_id = engine_session.id), 0)
FROM billed
WHERE engine_session.id = billed.id
RETURNING engine_session.id
