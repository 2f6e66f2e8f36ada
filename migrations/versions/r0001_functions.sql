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

CREATE FUNCTION thothy_drop_month(month text, lock_wait text) RETURNS boolean
LANGUAGE plpgsql SET search_path = :schema, pg_temp AS $$
DECLARE
    first date := to_date(month, 'YYYY_MM');
    parent text;
BEGIN
    IF EXISTS (
        SELECT FROM job
        WHERE id >= thothy_uuid_floor(first::timestamp AT TIME ZONE 'UTC')
            AND id < thothy_uuid_floor((first + interval '1 month') AT TIME ZONE 'UTC')
    ) THEN
        RETURN false;
    END IF;
    PERFORM set_config('lock_timeout', lock_wait, true);
    FOREACH parent IN ARRAY ARRAY['attempt', 'artifact', 'job_event'] LOOP
        EXECUTE format('DROP TABLE IF EXISTS %I', parent || to_char(first, '_YYYY_MM'));
    END LOOP;
    RETURN true;
END
$$;

COMMENT ON FUNCTION thothy_drop_month IS
    'Drops the partitions of a month (YYYY_MM) that has no jobs left; waits so long for each of their locks.';

-- For the policies of tenants' roles.
CREATE FUNCTION thothy_is_own_job(job_id uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path = :schema, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM job WHERE job.id = thothy_is_own_job.job_id);
END
$$;

COMMENT ON FUNCTION thothy_is_own_job IS
    'Whether the calling role may see the job. Volatile: it sees jobs that its statement has just inserted.';

CREATE FUNCTION thothy_is_own_text(text_id uuid) RETURNS boolean
LANGUAGE plpgsql SET search_path = :schema, pg_temp AS $$
BEGIN
    RETURN text_id IS NULL OR EXISTS (SELECT FROM source_text WHERE source_text.id = thothy_is_own_text.text_id);
END
$$;

COMMENT ON FUNCTION thothy_is_own_text IS
    'Whether the calling role may see the text. Volatile: it sees texts that its statement has just inserted.';

-- With the owner's rights: a tenant's role that cancels a job must not be able to write deliveries itself.
CREATE FUNCTION thothy_notify_end() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :schema, pg_temp AS $$
BEGIN
    INSERT INTO webhook_delivery (batch_id, tenant, url, origin, payload)
    SELECT batch.id, batch.tenant, url, substring(url FROM '^https?://[^/?#]+'), jsonb_build_object(
        'type', 'job.ended', 'timestamp', NEW.finished_at,
        'data', jsonb_build_object(
            'job_id', NEW.id, 'batch_id', batch.id, 'parent_id', NEW.parent_id, 'tenant', NEW.tenant, 'kind', NEW.kind,
            'state', NEW.state, 'reason', NEW.reason, 'attempt', NEW.attempt, 'failures', NEW.failures,
            'enqueued_at', NEW.enqueued_at, 'started_at', NEW.started_at, 'finished_at', NEW.finished_at
        )
    )
    FROM batch
    WHERE id = NEW.batch_id AND notify = 'job' AND url IS NOT NULL AND batch.tenant = NEW.tenant;
    PERFORM pg_notify(TG_TABLE_SCHEMA || '_webhooks', ''), pg_notify(TG_TABLE_SCHEMA || '_batches', '');
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION thothy_notify_end IS 'Writes the delivery of a webhook that is notified of a job''s end.';

CREATE TRIGGER notify_end AFTER UPDATE OF finished_at ON job FOR EACH ROW
    WHEN (NEW.batch_id IS NOT NULL AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL)
    EXECUTE FUNCTION thothy_notify_end();

CREATE FUNCTION thothy_notify_decision() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = :schema, pg_temp AS $$
BEGIN
    INSERT INTO webhook_delivery (batch_id, tenant, url, origin, payload)
    SELECT batch.id, batch.tenant, url, substring(url FROM '^https?://[^/?#]+'), jsonb_build_object(
        'type', 'job.decided', 'timestamp', NEW.decided_at,
        'data', jsonb_build_object(
            'job_id', NEW.job_id, 'batch_id', batch.id, 'tenant', NEW.tenant, 'kind', job.kind,
            'version', NEW.version, 'action', NEW.action, 'decided_by', NEW.decided_by, 'note', NEW.note
        )
    )
    FROM job JOIN batch ON batch.id = job.batch_id
    WHERE job.id = NEW.job_id AND notify = 'job' AND url IS NOT NULL AND batch.tenant = NEW.tenant;
    PERFORM pg_notify(TG_TABLE_SCHEMA || '_webhooks', '');
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION thothy_notify_decision IS
    'Writes the delivery of a webhook that is notified of a decision on a job''s artifact.';

CREATE TRIGGER notify_decision AFTER INSERT ON decision FOR EACH ROW EXECUTE FUNCTION thothy_notify_decision();
