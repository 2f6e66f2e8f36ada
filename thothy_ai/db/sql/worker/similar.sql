-- Recent accepted artifacts of other jobs, of the same tenant, kind and locale, whose signatures have an element in
-- common with this one: the newest first. Whether they are near-duplicates is for the caller to find out.
SELECT job_id, body
FROM artifact
WHERE signature && CAST(:signature AS bigint[]) AND signature IS NOT NULL
    AND tenant = :tenant AND kind = :kind AND locale = :locale AND verdict = 'accepted'
    AND created_at > now() - make_interval(days => :days) AND job_id <> CAST(:job_id AS uuid)
ORDER BY created_at DESC, job_id DESC
LIMIT 20
