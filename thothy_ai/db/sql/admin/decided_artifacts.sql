-- What people decided on texts that a model wrote, since then: the last decision on each text, if it is final, with
-- what checks had found in it, its fields, and those that were approved. An attempt that was sent back is one text, the
-- next attempt another.
WITH last AS (
    SELECT DISTINCT ON (job_id, attempt) job_id, attempt, version, action, decided_at
    FROM decision
    WHERE CAST(:tenant AS text) IS NULL OR tenant = :tenant
    ORDER BY job_id, attempt, decided_at DESC
)
SELECT artifact.kind, artifact.locale, action, artifact.reason, artifact.findings, artifact.body AS written,
    coalesce(edited.body, artifact.body) AS decided
FROM last
CROSS JOIN LATERAL (
    SELECT kind, locale, reason, findings, body
    FROM artifact
    WHERE artifact.job_id = last.job_id AND artifact.attempt <= last.attempt AND artifact.attempt > coalesce((
        SELECT max(sent.attempt)
        FROM decision AS sent
        WHERE sent.job_id = last.job_id AND sent.attempt < last.attempt AND sent.action = 'send_back'
    ), 0)
    ORDER BY reason = 'sent_back' DESC NULLS LAST, {best_draft}
    LIMIT 1
) AS artifact
LEFT JOIN artifact_version AS edited ON edited.job_id = last.job_id AND edited.version = last.version
WHERE action IN ('approve', 'reject', 'send_back') AND decided_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
