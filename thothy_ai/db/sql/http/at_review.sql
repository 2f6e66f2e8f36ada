-- Who looks at these artifacts now, but for one session.
SELECT job_id, string_agg(DISTINCT name, ', ') AS names
FROM review_draft
WHERE job_id = ANY(CAST(:ids AS uuid[])) AND session <> :session AND seen_at > now() - interval '30 seconds'
GROUP BY job_id
