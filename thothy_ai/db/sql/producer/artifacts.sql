-- The accepted artifacts of several jobs, of their own kinds. A tenant that is NULL stands for all.
SELECT DISTINCT ON (job_id) job_id, body
FROM artifact JOIN unnest(CAST(:ids AS uuid[]), CAST(:kinds AS text[])) AS wanted (id, wanted_kind)
    ON job_id = wanted.id AND kind = wanted_kind
WHERE verdict = 'accepted' AND {of_tenant}
ORDER BY job_id, attempt DESC
