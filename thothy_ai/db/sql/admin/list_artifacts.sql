-- Artifacts in the order they were made. A filter that is NULL lets everything through.
SELECT job_id, kind, locale, attempt, tenant, verdict, reason, body, text, created_at
FROM artifact
WHERE (CAST(:job_id AS uuid) IS NULL OR job_id = :job_id)
    AND (CAST(:kind AS text) IS NULL OR kind = :kind)
    AND (CAST(:verdict AS text) IS NULL OR verdict = :verdict)
    AND (CAST(:since AS timestamptz) IS NULL OR created_at >= :since)
ORDER BY created_at DESC, job_id DESC, attempt DESC, locale
LIMIT :limit
