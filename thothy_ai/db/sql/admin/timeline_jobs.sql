-- Jobs that finished in the window, by bin of time and state; and how many of them have a draft only.
SELECT floor(extract(epoch FROM finished_at - CAST(:origin AS timestamptz)) / :step)::integer AS bin, state,
    count(*) AS jobs,
    count(*) FILTER (WHERE {to_edit}) AS to_edit
FROM job
WHERE finished_at >= :since AND finished_at < :until
GROUP BY 1, 2
