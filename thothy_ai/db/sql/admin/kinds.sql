-- The kinds of all jobs.
SELECT DISTINCT kind FROM job ORDER BY kind
