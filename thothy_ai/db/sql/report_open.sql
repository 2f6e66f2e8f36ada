-- What is still to do at this moment, by kind and state.
SELECT kind, state, count(*) AS jobs
FROM job
WHERE state = 'queued' OR state = 'dispatched' OR state = 'running'  -- each has its partial index
GROUP BY kind, state
