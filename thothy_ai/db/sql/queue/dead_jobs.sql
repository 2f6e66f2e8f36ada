-- Jobs that died in the last 24 hours and have not been retried, by kind and reason.
SELECT kind, reason, count(*) AS jobs
FROM job
WHERE finished_at > now() - interval '24 hours' AND state = 'dead'
GROUP BY kind, reason
