-- Jobs for a list, the newest first. A filter that is NULL lets everything through.
SELECT id, kind, state, priority, deadline, attempt, failures, reason, detail, tenant, worker, enqueued_at, started_at, finished_at
FROM job
WHERE (CAST(:states AS text[]) IS NULL OR state = ANY(CAST(:states AS text[])))
    AND (CAST(:kind AS text) IS NULL OR kind = :kind)
    AND (CAST(:since AS timestamptz) IS NULL OR enqueued_at >= :since)
ORDER BY id DESC
LIMIT :limit
