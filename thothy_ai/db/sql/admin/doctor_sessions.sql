-- The service's processes that are connected to this database, and which of them lead (hold an advisory lock).
SELECT
    a.application_name AS application,
    count(DISTINCT a.pid) AS connections,
    min(extract(epoch FROM clock_timestamp() - a.state_change))::float8 AS quiet,
    bool_or(l.pid IS NOT NULL) AS leads
FROM pg_stat_activity AS a
LEFT JOIN pg_locks AS l ON l.pid = a.pid AND l.locktype = 'advisory' AND l.granted
WHERE a.datname = current_database() AND a.application_name LIKE 'thothy-%'
GROUP BY a.application_name
