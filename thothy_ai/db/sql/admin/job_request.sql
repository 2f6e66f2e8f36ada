-- A job's request, complete.
SELECT {whole_request}
FROM job_request {with_text}
WHERE job_id = :job_id
