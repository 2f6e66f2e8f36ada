-- Who else looks at an artifact now, and whether they have written something.
SELECT name, texts IS NOT NULL AS writes
FROM review_draft
WHERE job_id = :job_id AND session <> :session AND seen_at > now() - interval '30 seconds'
ORDER BY name
