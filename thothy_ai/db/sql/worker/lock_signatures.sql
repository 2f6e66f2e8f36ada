-- One transaction at a time looks for near-duplicates of the outputs of these jobs' tenants and kinds, and writes them.
-- Those that take several locks take them in one order.
SELECT pg_advisory_xact_lock(key)
FROM (
    SELECT DISTINCT hashtextextended(concat_ws(chr(31), current_schema(), 'signatures', tenant, kind), 0) AS key
    FROM job
    WHERE id = ANY(CAST(:ids AS uuid[]))
    ORDER BY key
) AS keys
