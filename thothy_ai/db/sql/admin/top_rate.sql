-- Jobs that ended in the last minute, cancelled ones apart, and for how many seconds some have.
SELECT count(*) AS ended, coalesce(extract(epoch FROM now() - min(finished_at)), 0)::float8 AS seconds
FROM job
WHERE finished_at > now() - interval '1 minute' AND state <> 'cancelled'
