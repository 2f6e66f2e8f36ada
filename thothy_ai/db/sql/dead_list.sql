-- Dead jobs for a list, those that died last first.
SELECT id, kind, reason, detail, attempt, failures, engine_deaths, priority, tenant, enqueued_at, finished_at
FROM job
WHERE state = 'dead'
    AND finished_at >= coalesce(CAST(:since AS timestamptz), '-infinity')
    AND finished_at < coalesce(CAST(:until AS timestamptz), 'infinity')
    AND (CAST(:ids AS uuid[]) IS NULL OR id = ANY(CAST(:ids AS uuid[])))
    AND (CAST(:kinds AS text[]) IS NULL OR kind = ANY(CAST(:kinds AS text[])))
    AND (CAST(:reasons AS text[]) IS NULL OR reason = ANY(CAST(:reasons AS text[])))
ORDER BY finished_at DESC, id DESC
LIMIT :limit
