-- Books what attempts cost whose worker could not: it vanished, or had been fenced. Only on rows that brought no output
-- and are booked for nothing. Returns those whose row is there; others have not ended yet.
WITH given AS (
    SELECT job_id, number, session_id, seconds
    FROM unnest(
        CAST(:job_ids AS uuid[]), CAST(:attempts AS integer[]), CAST(:session_ids AS uuid[]), CAST(:seconds AS float8[])
    ) AS orphan (job_id, number, session_id, seconds)
), booked AS (
    UPDATE attempt
    SET compute_seconds = given.seconds, engine_session_id = given.session_id
    FROM given
    WHERE attempt.job_id = given.job_id AND attempt.attempt = given.number
        AND compute_seconds = 0 AND outcome NOT IN ('succeeded', 'rejected')
)
SELECT attempt.job_id, attempt.attempt
FROM given JOIN attempt ON attempt.job_id = given.job_id AND attempt.attempt = given.number
