-- Records the usage of attempts whose own worker could not: it vanished, or it had been fenced off. Only rows without
-- output change, and only those with just so many seconds as the caller has recorded: nothing is added twice if its
-- answer is lost. Returns the attempts that have a row; the others have not ended yet.
WITH given AS (
    SELECT job_id, number, session_id, seconds, recorded
    FROM unnest(
        CAST(:job_ids AS uuid[]), CAST(:attempts AS integer[]), CAST(:session_ids AS uuid[]),
        CAST(:seconds AS float8[]), CAST(:recorded AS float8[])
    ) AS usage (job_id, number, session_id, seconds, recorded)
), updated AS (
    UPDATE attempt
    SET compute_seconds = given.seconds, engine_session_id = given.session_id
    FROM given
    WHERE attempt.job_id = given.job_id AND attempt.attempt = given.number
        AND {without_output} AND compute_seconds = given.recorded
)
SELECT attempt.job_id, attempt.attempt
FROM given JOIN attempt ON attempt.job_id = given.job_id AND attempt.attempt = given.number
