-- The version of a job's artifact that a person decides on next: the one that a person wrote last or, without one, what
-- the last attempt did; what was sent back, as it was edited, if that attempt has left nothing. `written` and `text`
-- are the model's; `text` is NULL of what a person wrote. `verification` says which model has held this text against
-- its source, NULL if none has.
SELECT job.id AS job_id, job.tenant, job.kind, job.state, job.review, job.version, job.attempt, job.deadline,
    job.finished_at, job.source_key, job.reason, job.detail, job.priority, job.max_attempts, job.max_compute_seconds,
    written.locale, written.body AS written,
    CASE WHEN edited.body IS NULL THEN written.text END AS text,
    coalesce(edited.body, written.body) AS body, edited.problem, edited_by,
    coalesce(edited.findings, written.findings) AS findings,
    CASE WHEN edited.body IS NULL AND jsonb_path_exists(written.verification, '$.claims[*] ? (@.label != "unread")')
        THEN written.verification - 'claims'
    END AS verification, {whole_request}
FROM job
LEFT JOIN LATERAL (
    SELECT artifact.locale, artifact.body, artifact.text, artifact.findings, artifact.verification
    FROM artifact
    WHERE artifact.job_id = job.id AND artifact.kind = job.kind
    ORDER BY {best_draft}
    LIMIT 1
) AS written ON true
LEFT JOIN LATERAL (
    SELECT * FROM artifact_version AS e WHERE e.job_id = job.id AND {standing} ORDER BY e.version DESC LIMIT 1
) AS edited ON true
LEFT JOIN job_request ON job_request.job_id = job.id
WHERE job.id = CAST(:id AS uuid) AND job.tenant = coalesce(CAST(:tenant AS text), job.tenant)
