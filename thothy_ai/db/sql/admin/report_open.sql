-- Open jobs at this moment, by kind and state.
SELECT kind, state, count(*) AS jobs
FROM job
WHERE {open}
GROUP BY kind, state
