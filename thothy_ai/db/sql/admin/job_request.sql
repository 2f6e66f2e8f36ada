-- A job's request, complete.
SELECT {whole_request}
FROM job_request
WHERE job_id = :job_id
