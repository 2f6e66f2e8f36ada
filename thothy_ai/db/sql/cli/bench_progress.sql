-- Jobs enqueued since then: how many are open, and how many seconds passed until the last one ended.
SELECT count(*) FILTER (WHERE finished_at IS NULL) AS open,
    CAST(extract(epoch FROM max(finished_at) - :since) AS double precision) AS seconds
FROM job
WHERE enqueued_at >= :since
