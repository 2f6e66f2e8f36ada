-- History tables are partitioned by ranges of UUIDv7: an id begins with its time, so a month is a range of ids.

CREATE FUNCTION thothy_uuid_floor(moment timestamptz) RETURNS uuid
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid;

COMMENT ON FUNCTION thothy_uuid_floor IS 'The least UUIDv7 of that millisecond: bounds job ids by time.';

-- Partitions from last month (clocks differ) to `months_ahead` months from now; returns how many it made.
-- ATTACH, not CREATE ... PARTITION OF: the latter locks out every reader and writer of the parent.
CREATE FUNCTION thothy_ensure_partitions(months_ahead integer) RETURNS integer
LANGUAGE plpgsql SET timezone = 'UTC' SET lock_timeout = '5s' AS $$
DECLARE
    parent text;
    child text;
    month timestamptz;
    low uuid;
    high uuid;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('thothy_ensure_partitions'));
    FOREACH parent IN ARRAY ARRAY['attempt', 'artifact', 'job_event'] LOOP
        FOR month IN
            SELECT generate_series(date_trunc('month', now()) - interval '1 month',
                                   date_trunc('month', now()) + make_interval(months => months_ahead),
                                   interval '1 month')
        LOOP
            child := format('%s_%s', parent, to_char(month, 'YYYY_MM'));
            CONTINUE WHEN to_regclass(quote_ident(child)) IS NOT NULL;
            low := thothy_uuid_floor(month);
            high := thothy_uuid_floor(month + interval '1 month');
            EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', parent || '_default');
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', child, parent);
            EXECUTE format('WITH moved AS (DELETE FROM %I WHERE job_id >= %L AND job_id < %L RETURNING *)'
                           ' INSERT INTO %I SELECT * FROM moved', parent || '_default', low, high, child);
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                           parent, child, low, high);
            made := made + 1;
        END LOOP;
    END LOOP;
    RETURN made;
END
$$;

COMMENT ON FUNCTION thothy_ensure_partitions IS 'Makes the monthly partitions of the history tables.';

CREATE TABLE attempt_default PARTITION OF attempt DEFAULT;
CREATE TABLE artifact_default PARTITION OF artifact DEFAULT;
CREATE TABLE job_event_default PARTITION OF job_event DEFAULT;
