-- Jobs for later, by kind.
SELECT kind, count(*) AS jobs
FROM job
WHERE state = 'queued' AND delayed
GROUP BY kind
