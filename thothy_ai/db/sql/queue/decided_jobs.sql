-- Jobs that ended in the last seven days and on whose artifact a person has decided, by kind, and those they approved.
SELECT kind, count(*) AS decided, count(*) FILTER (WHERE review = 'approved') AS approved
FROM job
WHERE {decided} AND finished_at > now() - interval '7 days'
GROUP BY kind
