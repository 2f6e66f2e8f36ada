-- Jobs that have not ended.
SELECT count(*) AS jobs FROM job WHERE {open}
