-- Dead jobs by kind and reason: how many, and when the first and the last died.
SELECT kind, reason, count(*) AS jobs, min(finished_at) AS first_died, max(finished_at) AS last_died
FROM job
WHERE {selected_dead}
GROUP BY kind, reason
ORDER BY jobs DESC, kind, reason
