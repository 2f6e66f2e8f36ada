-- Jobs that ended in the last `window` seconds, cancelled ones apart, and for how many seconds some have.
SELECT count(*) AS ended, coalesce(extract(epoch FROM now() - min(finished_at)), 0)::float8 AS seconds
FROM job
WHERE finished_at > now() - make_interval(secs => :window) AND state <> 'cancelled'
