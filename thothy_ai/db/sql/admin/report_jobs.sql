-- Jobs that finished in the window, by kind and state, and when the window's work began and ended.
SELECT kind, state, count(*) AS jobs, min(greatest(enqueued_at, :since)) AS first_enqueued,
    max(finished_at) AS last_finished
FROM job
WHERE finished_at >= :since AND finished_at < :until
GROUP BY kind, state
