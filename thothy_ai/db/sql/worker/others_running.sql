-- How many jobs run on this engine, apart from this worker's own that wait to run alone, or do.
SELECT count(*) AS jobs
FROM job
WHERE state = 'running' AND {on_this_engine} AND NOT (worker = :worker AND {runs_alone})
