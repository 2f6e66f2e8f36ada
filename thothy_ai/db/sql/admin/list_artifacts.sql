-- Artifacts, the newest first (`by_source`: within each source), with what identifies them: the request's key, channel,
-- audience and brief, the source, the parent job, and the model. A filter that is NULL lets everything through. A
-- person has the last word: what they approved is accepted, in their version, and what they rejected is not, and
-- neither is what follows a text that is another now. `text` is the model's: NULL of what they edited.
SELECT job_id, artifact.kind, locale, artifact.attempt, artifact.tenant, final AS verdict,
    CASE final WHEN 'rejected' THEN coalesce(artifact.reason, review) END AS reason, review,
    CASE WHEN published THEN version END AS approved_version, decided_by, decided_at,
    idempotency_key, request ->> 'channel' AS channel, request ->> 'audience' AS audience, request -> 'brief' AS brief,
    source_key, parent_id,
    (SELECT s.model FROM engine_session AS s WHERE s.id = tried.engine_session_id) AS model,
    provenance, verification, created_at,
    coalesce(edited, body) AS body, CASE WHEN edited IS NULL THEN text END AS text
FROM artifact
LEFT JOIN (
    SELECT id, kind AS job_kind, state, idempotency_key, source_key, parent_id, batch_id, enqueued_at, review, version
    FROM job
) AS made_by ON id = job_id
LEFT JOIN job_request USING (job_id)
LEFT JOIN attempt AS tried USING (job_id, attempt)
CROSS JOIN LATERAL (
    -- The artifact of which a person approved a version: the accepted one, otherwise the best draft.
    SELECT CASE WHEN review = 'approved' THEN artifact.attempt = (
        SELECT artifact.attempt
        FROM artifact
        WHERE artifact.job_id = made_by.id AND artifact.kind = made_by.job_kind
        ORDER BY {best_draft}
        LIMIT 1
    ) ELSE false END AS published
) AS approved
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN published THEN 'accepted'
        WHEN review IN ('rejected', 'superseded') THEN 'rejected'
        ELSE verdict
    END AS final
) AS decided
LEFT JOIN LATERAL (
    SELECT e.body AS edited
    FROM artifact_version AS e
    WHERE e.job_id = artifact.job_id AND {standing}
    ORDER BY e.version DESC
    LIMIT 1
) AS by_person ON published
LEFT JOIN LATERAL (
    SELECT decided_by, decided_at
    FROM decision
    WHERE decision.job_id = artifact.job_id
    ORDER BY decided_at DESC
    LIMIT 1
) AS last ON published OR review = 'rejected'
WHERE {selected_jobs}
    AND (CAST(:job_id AS uuid) IS NULL OR job_id = :job_id)
    AND (CAST(:kind AS text) IS NULL OR artifact.kind = :kind)
    AND (CAST(:tenant AS text) IS NULL OR artifact.tenant = :tenant)
    AND (CAST(:verdict AS text) IS NULL OR final = :verdict)
    AND (NOT CAST(:approved AS boolean) OR published)
    AND (CAST(:since AS timestamptz) IS NULL OR created_at >= :since)
    AND (CAST(:until AS timestamptz) IS NULL OR created_at < :until)
    AND (
        CAST(:after_at AS timestamptz) IS NULL
        OR (created_at, job_id, artifact.attempt) < (
            CAST(:after_at AS timestamptz), CAST(:after_job AS uuid), CAST(:after_attempt AS integer)
        )
    )
ORDER BY CASE WHEN :by_source THEN source_key END, created_at DESC, job_id DESC, artifact.attempt DESC, locale
LIMIT :limit
