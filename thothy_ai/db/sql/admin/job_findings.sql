-- What was found in a job's artifacts, attempt by attempt, each finding with its artifact's fields.
SELECT artifact.attempt, found.each AS finding, body
FROM artifact CROSS JOIN LATERAL jsonb_array_elements(findings) WITH ORDINALITY AS found (each, number)
WHERE job_id = :job_id
ORDER BY artifact.attempt, number
