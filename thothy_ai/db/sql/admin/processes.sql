-- The service's processes that are connected to this database, and which of them lead (hold an advisory lock).
-- `led`: how long the leader has been connected, and has led at most. Another role's sessions have no `state_change`.
SELECT
    substr(a.application_name, length(current_schema()) + 2) AS application,
    coalesce(min(extract(epoch FROM clock_timestamp() - a.state_change)), 0)::float8 AS quiet,
    bool_or(l.pid IS NOT NULL) AS leads,
    coalesce(
        min(extract(epoch FROM clock_timestamp() - a.backend_start)) FILTER (WHERE l.pid IS NOT NULL), 0
    )::float8 AS led
FROM pg_stat_activity AS a
LEFT JOIN pg_locks AS l ON l.pid = a.pid AND l.locktype = 'advisory' AND l.granted
WHERE a.datname = current_database() AND starts_with(a.application_name, current_schema() || '-')
GROUP BY a.application_name
