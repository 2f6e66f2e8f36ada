-- What is still to do at this moment, by kind and state.
SELECT kind, state, count(*) AS jobs
FROM job
WHERE finished_at IS NULL
GROUP BY kind, state
