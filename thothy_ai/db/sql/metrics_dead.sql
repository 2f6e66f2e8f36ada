-- Jobs that died within a day and were not retried since, by kind and reason.
SELECT kind, reason, count(*) AS jobs
FROM job
WHERE finished_at > now() - interval '24 hours' AND state = 'dead'
GROUP BY kind, reason
