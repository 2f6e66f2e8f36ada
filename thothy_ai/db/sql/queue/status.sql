-- The queue at this moment, one row per state. `due_age` is how long the oldest job that may run has waited; `held`:
-- due jobs that wait because of a pause of a part of the queue, which may not.
SELECT
    state,
    count(*) AS jobs,
    max(extract(epoch FROM now() - greatest(enqueued_at, not_before)))
        FILTER (WHERE not_before <= now() AND NOT held)::float8 AS due_age,
    count(*) FILTER (WHERE not_before <= now() AND held) AS held,
    count(*) FILTER (WHERE not_before > now()) AS delayed,
    count(*) FILTER (WHERE deadline IS NOT NULL) AS with_deadline,
    count(*) FILTER (WHERE deadline <= now() + interval '1 hour') AS due_1h,
    count(*) FILTER (WHERE deadline <= now() + interval '6 hours') AS due_6h,
    count(*) FILTER (WHERE deadline <= now() + interval '24 hours') AS due_24h,
    count(*) FILTER (WHERE state = 'running' AND lease_until < now()) AS expired_leases
FROM (SELECT *, state = 'queued' AND {held} AS held FROM job WHERE {open}) AS open
GROUP BY state
