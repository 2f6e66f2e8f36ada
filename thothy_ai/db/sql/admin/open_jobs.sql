-- The open jobs that a cancellation or a change by filter selects, the oldest first.
SELECT id, kind, state
FROM job
WHERE {open}
    AND {selected_jobs}
    AND (CAST(:kind AS text) IS NULL OR kind = :kind)
    AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
    AND (CAST(:model AS text) IS NULL OR model = :model)
    AND (CAST(:reason AS text) IS NULL OR reason = :reason)
    AND (CAST(:since AS timestamptz) IS NULL OR enqueued_at >= :since)
    AND (CAST(:until AS timestamptz) IS NULL OR enqueued_at < :until)
ORDER BY id
