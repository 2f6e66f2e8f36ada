-- For how many seconds the oldest expired lease has been expired; 0 when none is.
SELECT coalesce(max(extract(epoch FROM now() - lease_until)), 0)::float8
FROM job
WHERE state = 'running' AND lease_until < now()
