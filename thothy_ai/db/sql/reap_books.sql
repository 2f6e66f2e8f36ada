-- Closes the books of engine sessions that have ended, once nothing claimed for them runs: what is left of their busy
-- seconds goes in equal parts to the attempts that brought no output and that nobody could book. Results that came after
-- the last counters are proof of busy time: a session was busy for what it is booked for, at least.
-- An engine's clock may be wrong: `started_at` only bounds the scan, a day early.
WITH ended AS (
    SELECT id, busy_seconds AS busy, started_at - interval '1 day' AS since
    FROM engine_session
    WHERE ended_at IS NOT NULL AND settled_at IS NULL
        AND NOT EXISTS (SELECT FROM job WHERE state = 'running' AND engine_session_id = engine_session.id)
    FOR UPDATE
), booked AS (
    SELECT ended.id, coalesce(sum(compute_seconds), 0) AS seconds,
        count(*) FILTER (WHERE compute_seconds = 0 AND outcome NOT IN ('succeeded', 'rejected')) AS unbooked
    FROM ended LEFT JOIN attempt ON engine_session_id = ended.id AND finished_at >= since
    GROUP BY ended.id
), divided AS (
    UPDATE attempt
    SET compute_seconds = (busy - seconds) / unbooked
    FROM ended JOIN booked USING (id)
    WHERE engine_session_id = ended.id AND finished_at >= since
        AND compute_seconds = 0 AND outcome NOT IN ('succeeded', 'rejected') AND busy > seconds
)
UPDATE engine_session
SET settled_at = now(), busy_seconds = greatest(busy_seconds, seconds)
FROM booked
WHERE engine_session.id = booked.id
RETURNING engine_session.id
