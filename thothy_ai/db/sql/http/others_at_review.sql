-- Who else looks at an artifact now, and whether they have written something.
SELECT name, body IS NOT NULL AS writes
FROM review_draft
WHERE job_id = :job_id AND name <> :name AND seen_at > now() - interval '30 seconds'
ORDER BY name
