-- Settles engine sessions that have ended, once no job claimed for them runs: busy seconds that no attempt accounts for
-- are divided equally over the session's attempts without output and without recorded usage; if there are none, over
-- those without output, since a vanished worker knew of calls that had ended. Results that came after the last counters
-- prove busy time: a session was busy for at least what its attempts were billed.
-- An engine's clock may be wrong: `started_at`, a day early, only bounds the scan.
WITH ended AS (
    SELECT id, busy_seconds AS busy, started_at - interval '1 day' AS since
    FROM engine_session
    WHERE ended_at IS NOT NULL AND settled_at IS NULL
        AND NOT EXISTS (SELECT FROM job WHERE state = 'running' AND engine_session_id = engine_session.id)
    FOR UPDATE
), billed AS (
    SELECT ended.id, coalesce(sum(compute_seconds), 0) AS seconds,
        count(*) FILTER (WHERE {unbilled}) AS unbilled_attempts,
        count(*) FILTER (WHERE {without_output}) AS attempts_without_output
    FROM ended LEFT JOIN attempt ON engine_session_id = ended.id AND finished_at >= since
    GROUP BY ended.id
), divided AS (
    UPDATE attempt
    SET compute_seconds = compute_seconds
        + (busy - seconds) / coalesce(nullif(unbilled_attempts, 0), attempts_without_output)
    FROM ended JOIN billed USING (id)
    WHERE engine_session_id = ended.id AND finished_at >= since
        AND {without_output} AND (unbilled_attempts = 0 OR {unbilled}) AND busy > seconds
)
UPDATE engine_session
SET settled_at = now(), busy_seconds = greatest(busy_seconds, seconds)
FROM billed
WHERE engine_session.id = billed.id
RETURNING engine_session.id
