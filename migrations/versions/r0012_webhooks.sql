CREATE TABLE IF NOT EXISTS batch (
    id uuid NOT NULL,
    tenant text NOT NULL,
    url text NOT NULL,
    notify text NOT NULL,
    jobs integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CONSTRAINT pk_batch PRIMARY KEY (id),
    CONSTRAINT ck_batch_notify CHECK (notify IN ('job', 'batch')),
    CONSTRAINT ck_batch_url CHECK (url ~ '^https?://[^/?#]+' AND length(url) <= 2000)
);

CREATE INDEX IF NOT EXISTS ix_batch_open ON batch (id) WHERE ended_at IS NULL;

CREATE TABLE IF NOT EXISTS webhook_delivery (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    batch_id uuid NOT NULL,
    tenant text NOT NULL,
    url text NOT NULL,
    origin text NOT NULL,
    payload jsonb NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL DEFAULT now(),
    retry_until timestamptz NOT NULL DEFAULT now() + interval '1 day',
    created_at timestamptz NOT NULL DEFAULT now(),
    delivered_at timestamptz,
    dead_at timestamptz,
    status integer,
    error text,
    CONSTRAINT pk_webhook_delivery PRIMARY KEY (id),
    CONSTRAINT ck_webhook_delivery_ended CHECK (num_nonnulls(delivered_at, dead_at) <= 1)
);

CREATE INDEX IF NOT EXISTS ix_webhook_delivery_waiting ON webhook_delivery (origin, next_attempt_at)
    WHERE delivered_at IS NULL AND dead_at IS NULL;

CREATE INDEX IF NOT EXISTS ix_webhook_delivery_created_at ON webhook_delivery (created_at);

-- With the owner's rights: a tenant's role that cancels a job must not be able to write deliveries itself.
CREATE OR REPLACE FUNCTION thothy_tell_end() RETURNS trigger
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
    WHERE id = NEW.batch_id AND notify = 'job' AND batch.tenant = NEW.tenant;
    PERFORM pg_notify(TG_TABLE_SCHEMA || '_webhooks', '');
    RETURN NULL;
END
$$;

COMMENT ON FUNCTION thothy_tell_end IS 'Writes the delivery of a webhook that the end of a job is told to.';

CREATE OR REPLACE TRIGGER tell_end AFTER UPDATE OF finished_at ON job FOR EACH ROW
    WHEN (NEW.batch_id IS NOT NULL AND NEW.finished_at IS NOT NULL AND OLD.finished_at IS NULL)
    EXECUTE FUNCTION thothy_tell_end();
