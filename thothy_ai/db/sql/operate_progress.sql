-- How far a drain is: jobs still open, jobs that finished since it began (NULL: now), and where it began.
SELECT
    count(*) AS open,
    (SELECT count(*) FROM job WHERE finished_at >= coalesce(CAST(:since AS timestamptz), now())) AS finished,
    min(enqueued_at) AS oldest,
    now() AS now
FROM job
WHERE (state = 'queued' AND NOT delayed) OR (state = 'queued' AND delayed) OR state = 'dispatched' OR state = 'running'
    -- each has its partial index; where most jobs are open, Postgres reads the table
