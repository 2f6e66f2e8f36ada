-- What is still to do at this moment, by kind and state.
SELECT kind, state, count(*) AS jobs
FROM job
WHERE (state = 'queued' AND NOT delayed) OR (state = 'queued' AND delayed) OR state = 'dispatched' OR state = 'running'
    -- each has its partial index; where most jobs are open, Postgres reads the table
GROUP BY kind, state
