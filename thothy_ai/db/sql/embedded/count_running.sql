-- Jobs that run at this moment.
SELECT count(*) AS jobs FROM job WHERE state = 'running'
