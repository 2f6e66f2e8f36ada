-- Jobs for a list, the newest first. A filter that is NULL lets everything through.
SELECT {listed_job}
FROM job
WHERE {selected_jobs}
    AND (CAST(:kind AS text) IS NULL OR kind = :kind)
    AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
    AND (CAST(:model AS text) IS NULL OR model = :model)
    AND (CAST(:reason AS text) IS NULL OR reason = :reason)
    AND (CAST(:since AS timestamptz) IS NULL OR enqueued_at >= :since)
    AND (CAST(:until AS timestamptz) IS NULL OR enqueued_at < :until)
    AND (CAST(:above AS uuid) IS NULL OR id > :above)
    AND (CAST(:after AS uuid) IS NULL OR id < :after)
ORDER BY id DESC
LIMIT :limit
