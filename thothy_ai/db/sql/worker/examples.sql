-- Artifacts of a tenant that people have approved as examples of a voice in this language, the newest first.
SELECT decision.job_id, example
FROM decision JOIN job ON job.id = decision.job_id AND job.version = decision.version AND review = 'approved'
WHERE decision.tenant = :tenant AND voice = :voice AND example IS NOT NULL
    AND split_part(locale, '-', 1) = :language
ORDER BY decided_at DESC
LIMIT :limit
