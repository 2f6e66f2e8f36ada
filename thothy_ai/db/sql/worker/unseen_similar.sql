-- The attempts whose output may be nearly the same as an accepted artifact that it was not compared with: one that was
-- written since. `rows` is a JSON array.
SELECT given.id, given.attempt
FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS given (
    id uuid, attempt integer, locale text, signature bigint[], compared_with uuid[]
) JOIN job USING (id) CROSS JOIN LATERAL (
    SELECT job_id
    FROM (
        SELECT job_id, created_at
        FROM artifact
        WHERE artifact.signature && given.signature AND artifact.signature IS NOT NULL
            AND artifact.tenant = job.tenant AND artifact.kind = job.kind AND artifact.locale = given.locale
            AND verdict = 'accepted' AND created_at > now() - make_interval(days => :days) AND job_id <> given.id
        OFFSET 0  -- the index of signatures, not of times
    ) AS alike
    ORDER BY created_at DESC, job_id DESC
    LIMIT 20  -- as in `similar`
) AS newest
GROUP BY given.id, given.attempt
HAVING bool_or(newest.job_id <> ALL (given.compared_with))
