-- How far a drain has come: jobs still open, jobs that finished since it began (NULL: now), and when the oldest open job
-- was enqueued.
SELECT
    count(*) AS open,
    (SELECT count(*) FROM job WHERE finished_at >= coalesce(CAST(:since AS timestamptz), now())) AS finished,
    min(enqueued_at) AS oldest,
    now() AS now
FROM job
WHERE {open}
