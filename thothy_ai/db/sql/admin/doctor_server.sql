-- The server's version, encoding, its connections, and whether history has a partition for next month.
SELECT
    current_setting('server_version') AS version,
    current_setting('server_version_num')::int AS number,
    current_setting('server_encoding') AS encoding,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
    current_setting('max_connections')::int AS max_connections,
    current_setting('transaction_read_only')::bool AS read_only,
    to_regclass(
        format('attempt_%s', to_char((now() + interval '1 month') AT TIME ZONE 'UTC', 'YYYY_MM'))
    ) IS NOT NULL AS partitioned
