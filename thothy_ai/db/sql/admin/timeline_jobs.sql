-- Jobs that finished in the window, by bin of time and state.
SELECT floor(extract(epoch FROM finished_at - CAST(:origin AS timestamptz)) / :step)::integer AS bin, state, count(*) AS jobs
FROM job
WHERE finished_at >= :since AND finished_at < :until
GROUP BY 1, 2
