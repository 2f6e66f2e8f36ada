-- The artifacts of jobs: the version that a person approved or, until then, what the gates accepted. Without one,
-- `body` is NULL, and `draft` the version that a person may edit; `edited` is its number, if a person wrote it.
SELECT job.id AS job_id, CASE
        WHEN review = 'approved' THEN coalesce(edited.body, written.body) WHEN verdict = 'accepted' THEN written.body
    END AS body,
    coalesce(edited.body, written.body) AS draft, coalesce(edited.findings, written.findings) AS findings,
    CASE WHEN edited.body IS NOT NULL THEN job.version END AS edited
FROM job
LEFT JOIN LATERAL (
    SELECT body, findings
    FROM artifact_version AS e
    WHERE e.job_id = job.id AND {standing}
    ORDER BY e.version DESC
    LIMIT 1
) AS edited ON true
LEFT JOIN LATERAL (
    SELECT verdict, artifact.body, artifact.findings
    FROM artifact
    WHERE artifact.job_id = job.id AND artifact.kind = job.kind
    ORDER BY {best_draft}
    LIMIT 1
) AS written ON true
WHERE job.id = ANY(CAST(:ids AS uuid[])) AND job.tenant = coalesce(CAST(:tenant AS text), job.tenant)
