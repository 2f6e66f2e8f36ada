-- The reasons of all jobs.
SELECT DISTINCT reason FROM job WHERE reason IS NOT NULL ORDER BY reason
