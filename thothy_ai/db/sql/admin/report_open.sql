-- Open jobs at this moment, by kind and state; `later` of them were never tried, and are not due soon.
SELECT kind, state, count(*) AS jobs,
    count(*) FILTER (WHERE state = 'queued' AND attempt = 0 AND not_before > now() + {delay_margin}) AS later
FROM job
WHERE {open}
GROUP BY kind, state
