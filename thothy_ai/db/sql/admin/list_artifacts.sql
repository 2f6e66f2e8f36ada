-- Artifacts, the newest first (`by_source`: within each source), with what identifies them: the request's key, channel
-- and audience, the source, the parent job, and the model. A filter that is NULL lets everything through.
SELECT job_id, artifact.kind, locale, artifact.attempt, artifact.tenant, verdict, artifact.reason,
    idempotency_key, request ->> 'channel' AS channel, request ->> 'audience' AS audience, source_key, parent_id,
    (SELECT s.model FROM engine_session AS s WHERE s.id = tried.engine_session_id) AS model,
    provenance, verification, created_at, body, text
FROM artifact
LEFT JOIN (SELECT id, state, idempotency_key, source_key, parent_id, enqueued_at FROM job) AS made_by ON id = job_id
LEFT JOIN job_request USING (job_id)
LEFT JOIN attempt AS tried USING (job_id, attempt)
WHERE {selected_jobs}
    AND (CAST(:job_id AS uuid) IS NULL OR job_id = :job_id)
    AND (CAST(:kind AS text) IS NULL OR artifact.kind = :kind)
    AND (CAST(:tenant AS text) IS NULL OR artifact.tenant = :tenant)
    AND (CAST(:verdict AS text) IS NULL OR verdict = :verdict)
    AND (CAST(:since AS timestamptz) IS NULL OR created_at >= :since)
    AND (CAST(:until AS timestamptz) IS NULL OR created_at < :until)
    AND (
        CAST(:after_at AS timestamptz) IS NULL
        OR (created_at, job_id, artifact.attempt) < (CAST(:after_at AS timestamptz), CAST(:after_job AS uuid), CAST(:after_attempt AS integer))
    )
ORDER BY CASE WHEN :by_source THEN source_key END, created_at DESC, job_id DESC, artifact.attempt DESC, locale
LIMIT :limit
