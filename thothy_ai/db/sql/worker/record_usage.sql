-- Records the usage of attempts whose own worker could not: it vanished, or it had been fenced off. Only rows without
-- output change, and only those with just so many seconds as the caller has recorded: nothing is added twice if its
-- answer is lost. Usage that is added to closed hours restates them. Returns the attempts that have a row; the others
-- have not ended yet. Locks in the order of all statements that change attempts: progress, sessions by id, attempts,
-- hours.
WITH progress AS (
    SELECT closed_until FROM usage_progress WHERE name = 'default' FOR SHARE
), given AS (
    SELECT job_id, number, session_id, seconds, recorded
    FROM unnest(
        CAST(:job_ids AS uuid[]), CAST(:attempts AS integer[]), CAST(:session_ids AS uuid[]),
        CAST(:seconds AS float8[]), CAST(:recorded AS float8[])
    ) AS usage (job_id, number, session_id, seconds, recorded)
), sessions AS (
    SELECT id
    FROM engine_session
    WHERE id = ANY(CAST(:session_ids AS uuid[]))
        AND (SELECT closed_until FROM progress) IS NOT NULL -- which also waits for its lock
    ORDER BY id
    FOR NO KEY UPDATE
), updated AS (
    UPDATE attempt
    SET compute_seconds = given.seconds, engine_session_id = given.session_id
    FROM given
    WHERE attempt.job_id = given.job_id AND attempt.attempt = given.number
        AND {without_output} AND compute_seconds = given.recorded
        AND (SELECT count(*) FROM sessions) >= 0
    RETURNING finished_at, tenant, kind, engine_session_id, adapter, given.seconds - given.recorded AS added
), late AS (
    {late_usage} FROM updated WHERE finished_at < (SELECT closed_until FROM progress)
), restated AS (
    {restate}
), billed AS (
    UPDATE engine_session
    SET billed_seconds = billed_seconds + sums.seconds
    FROM (SELECT engine_session_id, sum(added) AS seconds FROM late GROUP BY 1) AS sums
    WHERE id = sums.engine_session_id
)
SELECT attempt.job_id, attempt.attempt
FROM given JOIN attempt ON attempt.job_id = given.job_id AND attempt.attempt = given.number
