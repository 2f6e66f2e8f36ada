-- How far a drain is: jobs still open, jobs that finished since it began, and where it began.
SELECT
    count(*) FILTER (WHERE finished_at IS NULL) AS open,
    count(*) FILTER (WHERE finished_at IS NOT NULL) AS finished,
    min(enqueued_at) FILTER (WHERE finished_at IS NULL) AS oldest,
    now() AS now
FROM job
WHERE finished_at IS NULL OR finished_at >= coalesce(CAST(:since AS timestamptz), now())
