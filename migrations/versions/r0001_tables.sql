CREATE TABLE job (
    id uuid CONSTRAINT pk_job PRIMARY KEY,
    tenant text NOT NULL,
    kind text NOT NULL,
    state text NOT NULL DEFAULT 'queued',
    priority smallint NOT NULL DEFAULT 0,
    deadline timestamptz,
    not_before timestamptz NOT NULL DEFAULT now(),
    source_key text NOT NULL,
    idempotency_key text,
    request_digest text NOT NULL,
    parent_id uuid,
    attempt integer NOT NULL DEFAULT 0,
    failures smallint NOT NULL DEFAULT 0,
    max_attempts smallint NOT NULL,
    engine_deaths smallint NOT NULL DEFAULT 0,
    dispatch_no integer NOT NULL DEFAULT 0,
    dispatched_at timestamptz,
    worker text,
    lease_until timestamptz,
    started_at timestamptz,
    finished_at timestamptz,
    cancel_requested boolean NOT NULL DEFAULT false,
    reason text,
    detail text,
    enqueued_at timestamptz NOT NULL DEFAULT now(),
    delayed boolean NOT NULL DEFAULT false,
    engine_session_id uuid,
    scheduled_for timestamptz,
    max_compute_seconds double precision,
    budget_after integer NOT NULL DEFAULT 0,
    model text,
    adapter text NOT NULL DEFAULT '',
    engine_name text,
    batch_id uuid,
    review text,
    version integer NOT NULL DEFAULT 1,
    CONSTRAINT uq_job_tenant_idempotency_key UNIQUE (tenant, idempotency_key),
    CONSTRAINT ck_job_state CHECK (
        state IN ('queued', 'dispatched', 'running', 'succeeded', 'dead', 'cancelled', 'expired')
    ),
    CONSTRAINT ck_job_priority CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT ck_job_max_attempts CHECK (max_attempts >= 1),
    CONSTRAINT ck_job_counters CHECK (attempt >= 0 AND failures >= 0 AND engine_deaths >= 0),
    CONSTRAINT ck_job_running CHECK (
        CASE WHEN state = 'running' THEN num_nulls(worker, lease_until, started_at) = 0
        ELSE num_nonnulls(worker, lease_until) = 0 END
    ),
    CONSTRAINT ck_job_dispatched CHECK (state <> 'dispatched' OR dispatched_at IS NOT NULL),
    CONSTRAINT ck_job_terminal CHECK (
        (state IN ('succeeded', 'dead', 'cancelled', 'expired')) = (finished_at IS NOT NULL)
    ),
    CONSTRAINT ck_job_dead CHECK (state <> 'dead' OR reason IS NOT NULL),
    CONSTRAINT ck_job_review CHECK (review IN ('needs_review', 'needs_edit', 'held', 'approved', 'rejected', 'superseded')),
    CONSTRAINT ck_job_reviewed CHECK (review IS NULL OR state = 'succeeded')
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- The planned order: of jobs that name no model, and of those of each model.
CREATE INDEX ix_job_queued ON job (
    thothy_virtual_deadline(priority, deadline, enqueued_at, scheduled_for),
    thothy_due(deadline, enqueued_at, scheduled_for), source_key, id
) WHERE state = 'queued' AND NOT delayed AND model IS NULL;
CREATE INDEX ix_job_queued_model ON job (
    model, thothy_virtual_deadline(priority, deadline, enqueued_at, scheduled_for),
    thothy_due(deadline, enqueued_at, scheduled_for), source_key, id
) WHERE state = 'queued' AND NOT delayed AND model IS NOT NULL;
CREATE INDEX ix_job_delayed ON job (not_before) WHERE state = 'queued' AND delayed;
CREATE INDEX ix_job_dispatched ON job (engine_name, priority, dispatched_at DESC) WHERE state = 'dispatched';
CREATE INDEX ix_job_running ON job (worker) WHERE state = 'running';
CREATE INDEX ix_job_deadline ON job (deadline) WHERE state IN ('queued', 'dispatched') AND deadline IS NOT NULL;
CREATE INDEX ix_job_cancelled ON job (id) WHERE state IN ('queued', 'dispatched') AND cancel_requested;
CREATE INDEX ix_job_terminal ON job (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX ix_job_dead ON job (finished_at, id) WHERE state = 'dead';
CREATE INDEX ix_job_review ON job (finished_at, id) WHERE review IN ('needs_review', 'needs_edit', 'held');
CREATE INDEX ix_job_decided ON job (finished_at) WHERE review IN ('approved', 'rejected');
CREATE INDEX ix_job_parent ON job (parent_id, id) WHERE parent_id IS NOT NULL;
CREATE INDEX ix_job_batch ON job (batch_id, id) WHERE batch_id IS NOT NULL;
CREATE INDEX ix_job_batch_open ON job (batch_id) WHERE batch_id IS NOT NULL AND finished_at IS NULL;

-- A long text is stored once per tenant; requests refer to it.
CREATE TABLE source_text (
    id uuid CONSTRAINT pk_source_text PRIMARY KEY,
    tenant text NOT NULL,
    digest text NOT NULL,
    content text NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ix_source_text_tenant ON source_text (tenant, digest);

CREATE TABLE job_request (
    job_id uuid CONSTRAINT pk_job_request PRIMARY KEY
        CONSTRAINT fk_job_request_job_id REFERENCES job (id) ON DELETE CASCADE,
    request jsonb NOT NULL,
    text_field text,
    text_id uuid CONSTRAINT fk_job_request_text_id REFERENCES source_text (id),
    CONSTRAINT ck_job_request_text CHECK ((text_id IS NULL) = (text_field IS NULL))
);
CREATE INDEX ix_job_request_text_id ON job_request (text_id) WHERE text_id IS NOT NULL;

-- History, partitioned by the month of the job's id.
CREATE TABLE attempt (
    job_id uuid NOT NULL,
    attempt integer NOT NULL,
    tenant text NOT NULL,
    kind text NOT NULL,
    worker text NOT NULL,
    engine_session_id uuid,
    adapter text NOT NULL DEFAULT '',
    started_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL DEFAULT now(),
    outcome text NOT NULL,
    reason text,
    detail text,
    prompt_tokens integer NOT NULL DEFAULT 0,
    cached_tokens integer NOT NULL DEFAULT 0,
    output_tokens integer NOT NULL DEFAULT 0,
    compute_seconds double precision NOT NULL DEFAULT 0,
    verification_seconds double precision NOT NULL DEFAULT 0,
    saved_tokens integer NOT NULL DEFAULT 0,
    CONSTRAINT pk_attempt PRIMARY KEY (job_id, attempt),
    CONSTRAINT ck_attempt_outcome CHECK (
        outcome IN ('succeeded', 'rejected', 'failed', 'lost', 'released', 'cancelled', 'expired')
    )
) PARTITION BY RANGE (job_id);
CREATE INDEX ix_attempt_finished_at ON attempt (finished_at);
CREATE INDEX ix_attempt_without_output ON attempt (engine_session_id) WHERE outcome NOT IN ('succeeded', 'rejected');

CREATE TABLE artifact (
    job_id uuid NOT NULL,
    kind text NOT NULL,
    locale text NOT NULL,
    attempt integer NOT NULL,
    tenant text NOT NULL,
    verdict text NOT NULL,
    reason text,
    body jsonb,
    text text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    provenance jsonb,
    verification jsonb,
    findings jsonb NOT NULL DEFAULT '[]',
    draft boolean NOT NULL DEFAULT false,
    signature bigint[],
    CONSTRAINT pk_artifact PRIMARY KEY (job_id, kind, locale, attempt),
    CONSTRAINT ck_artifact_verdict CHECK (verdict IN ('accepted', 'rejected')),
    CONSTRAINT ck_artifact_accepted CHECK (verdict <> 'accepted' OR (body IS NOT NULL AND reason IS NULL)),
    CONSTRAINT ck_artifact_rejected CHECK (verdict <> 'rejected' OR reason IS NOT NULL)
) PARTITION BY RANGE (job_id);
CREATE UNIQUE INDEX uq_artifact_accepted ON artifact (job_id, kind, locale) WHERE verdict = 'accepted';
CREATE INDEX ix_artifact_created_at ON artifact (created_at);
CREATE INDEX ix_artifact_signature ON artifact USING gin (signature) WITH (fastupdate = off) WHERE signature IS NOT NULL;

CREATE TABLE job_event (
    job_id uuid NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    event text NOT NULL,
    detail text,
    CONSTRAINT pk_job_event PRIMARY KEY (job_id, at, event),
    CONSTRAINT ck_job_event_event CHECK (
        event IN (
            'retried', 'lost', 'republished', 'dead', 'rejected', 'kept', 'cancelled', 'expired', 'released', 'redriven',
            'changed'
        )
    )
) PARTITION BY RANGE (job_id);

-- What people decided, each time on one version of a job's artifact, and the versions that they wrote; the model wrote
-- the others. Both end with their job.
CREATE TABLE decision (
    job_id uuid NOT NULL CONSTRAINT fk_decision_job_id REFERENCES job (id) ON DELETE CASCADE,
    decided_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    version integer NOT NULL,
    attempt integer NOT NULL,
    tenant text NOT NULL,
    action text NOT NULL,
    decided_by text NOT NULL,
    note text,
    voice text,
    locale text,
    example text,
    CONSTRAINT pk_decision PRIMARY KEY (job_id, decided_at),
    CONSTRAINT ck_decision_action CHECK (action IN ('approve', 'edit', 'reject', 'send_back', 'hold', 'reopen'))
);
CREATE INDEX ix_decision_decided_at ON decision (decided_at);
CREATE INDEX ix_decision_voice ON decision (tenant, voice, decided_at) WHERE example IS NOT NULL;

CREATE TABLE artifact_version (
    job_id uuid NOT NULL CONSTRAINT fk_artifact_version_job_id REFERENCES job (id) ON DELETE CASCADE,
    version integer NOT NULL,
    tenant text NOT NULL,
    body jsonb NOT NULL,
    problem text,
    findings jsonb NOT NULL DEFAULT '[]',
    edited_by text NOT NULL,
    CONSTRAINT pk_artifact_version PRIMARY KEY (job_id, version),
    CONSTRAINT ck_artifact_version_version CHECK (version > 1)
);

-- Stored briefs. A version never changes; one without a body says that the brief was removed.
CREATE TABLE brief (
    tenant text NOT NULL,
    name text NOT NULL,
    version integer NOT NULL,
    body jsonb,
    saved_by text NOT NULL,
    saved_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_brief PRIMARY KEY (tenant, name, version),
    CONSTRAINT ck_brief_version CHECK (version > 0)
);

-- What `thothy eval verification` has measured last of a model that verifies claims.
CREATE TABLE measured_verifier (
    name text NOT NULL,
    weights text NOT NULL,
    found integer NOT NULL,
    false_alarms integer NOT NULL,
    measured_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_measured_verifier PRIMARY KEY (name, weights)
);

-- Who looks at an artifact in the console, in which session, and what they have written there and not decided yet.
CREATE TABLE review_draft (
    job_id uuid NOT NULL CONSTRAINT fk_review_draft_job_id REFERENCES job (id) ON DELETE CASCADE,
    session uuid NOT NULL,
    viewer text NOT NULL,
    name text NOT NULL,
    version integer NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now(),
    texts jsonb,
    CONSTRAINT pk_review_draft PRIMARY KEY (job_id, session)
);

CREATE TABLE attempt_default PARTITION OF attempt DEFAULT;
CREATE TABLE artifact_default PARTITION OF artifact DEFAULT;
CREATE TABLE job_event_default PARTITION OF job_event DEFAULT;

CREATE TABLE engine_session (
    id uuid CONSTRAINT pk_engine_session PRIMARY KEY,
    model text NOT NULL,
    device text NOT NULL,
    dtype text NOT NULL,
    gpus integer NOT NULL,
    num_blocks integer NOT NULL,
    block_size integer NOT NULL,
    started_at timestamptz NOT NULL,
    heartbeat_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    busy_seconds double precision NOT NULL DEFAULT 0,
    prefill_seconds double precision NOT NULL DEFAULT 0,
    decode_seconds double precision NOT NULL DEFAULT 0,
    direct_seconds double precision NOT NULL DEFAULT 0,
    interactive_seconds double precision NOT NULL DEFAULT 0,
    prompt_tokens bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    settled_at timestamptz,
    engine_name text NOT NULL DEFAULT '',
    machine text NOT NULL DEFAULT '',
    devices text[] NOT NULL DEFAULT '{}',
    address text NOT NULL DEFAULT '',
    capacity integer NOT NULL DEFAULT 0,
    model_name text NOT NULL DEFAULT '',
    adapters jsonb NOT NULL DEFAULT '{}',
    state text NOT NULL DEFAULT 'ready',
    ready_at timestamptz,
    end_reason text,
    billed_seconds double precision NOT NULL DEFAULT 0,
    worker_heartbeat_at timestamptz,
    declared boolean NOT NULL DEFAULT false,
    running_sequences integer,
    waiting_sequences integer,
    kv_used double precision,
    memory_used bigint,
    memory_total bigint,
    CONSTRAINT ck_engine_session_state CHECK (state IN ('loading', 'ready', 'stopping', 'ended'))
);
CREATE INDEX ix_engine_session_heartbeat_at ON engine_session (heartbeat_at);

CREATE TABLE model_alias (
    alias text CONSTRAINT pk_model_alias PRIMARY KEY,
    model_name text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- Keys of the HTTP API. `hash` is that of the whole key, which is shown once.
CREATE TABLE api_key (
    id text CONSTRAINT pk_api_key PRIMARY KEY,
    hash bytea NOT NULL,
    tenant text NOT NULL,
    name text NOT NULL DEFAULT '',
    scopes text[] NOT NULL,
    requests_per_minute integer,
    tokens_per_minute bigint,
    concurrent_requests integer,
    interactive_seconds_per_day double precision,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT ck_api_key_scopes CHECK (
        cardinality(scopes) > 0 AND scopes <@ ARRAY['chat', 'jobs', 'read', 'review', 'admin']
    ),
    CONSTRAINT ck_api_key_limits CHECK (
        least(requests_per_minute, tokens_per_minute, concurrent_requests, interactive_seconds_per_day) > 0
    )
);

-- The console: the secret that signs sessions, links that sign in once, who did, and what people changed there.
CREATE TABLE console_secret (
    one boolean CONSTRAINT pk_console_secret PRIMARY KEY DEFAULT true,
    secret text NOT NULL,
    CONSTRAINT ck_console_secret_one CHECK (one)
);

CREATE TABLE console_link (
    digest bytea CONSTRAINT pk_console_link PRIMARY KEY,
    name text NOT NULL,
    personal boolean NOT NULL,
    role text NOT NULL,
    tenant text,
    expires_at timestamptz NOT NULL,
    CONSTRAINT ck_console_link_role CHECK (role IN ('reader', 'editor', 'operator'))
);

CREATE TABLE console_session (
    id uuid CONSTRAINT pk_console_session PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL,
    tenant text,
    key_id text,
    began_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CONSTRAINT ck_console_session_role CHECK (role IN ('reader', 'editor', 'operator'))
);

CREATE TABLE audit_log (
    id uuid CONSTRAINT pk_audit_log PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    name text NOT NULL,
    tenant text,
    action text NOT NULL,
    target text NOT NULL,
    before jsonb,
    after jsonb
);

CREATE TABLE queue_control (
    name text CONSTRAINT pk_queue_control PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    changed_at timestamptz NOT NULL DEFAULT now(),
    note text
);
INSERT INTO queue_control (name) VALUES ('default');

CREATE TABLE queue_pause (
    scope text NOT NULL,
    name text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
    paused_by text NOT NULL,
    note text,
    CONSTRAINT pk_queue_pause PRIMARY KEY (scope, name),
    CONSTRAINT ck_queue_pause_scope CHECK (scope IN ('kind', 'tenant', 'model', 'engine'))
);

-- The bill: usage per closed hour, how far hours are closed, and drains.
CREATE TABLE usage_by_hour (
    hour timestamptz NOT NULL,
    tenant text NOT NULL,
    kind text NOT NULL,
    model_name text NOT NULL,
    adapter text NOT NULL DEFAULT '',
    attempts bigint NOT NULL DEFAULT 0,
    accepted bigint NOT NULL DEFAULT 0,
    rejected bigint NOT NULL DEFAULT 0,
    lost bigint NOT NULL DEFAULT 0,
    dead bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    prompt_tokens bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    saved_tokens bigint NOT NULL DEFAULT 0,
    resident_seconds double precision NOT NULL DEFAULT 0,
    busy_seconds double precision NOT NULL DEFAULT 0,
    useful_seconds double precision NOT NULL DEFAULT 0,
    verification_seconds double precision NOT NULL DEFAULT 0,
    requests bigint NOT NULL DEFAULT 0,
    interactive_seconds double precision NOT NULL DEFAULT 0,
    with_output bigint NOT NULL DEFAULT 0,
    with_artifact bigint NOT NULL DEFAULT 0,
    clean bigint NOT NULL DEFAULT 0,
    to_edit bigint NOT NULL DEFAULT 0,
    decided bigint NOT NULL DEFAULT 0,
    approved bigint NOT NULL DEFAULT 0,
    draft_seconds double precision NOT NULL DEFAULT 0,
    redeemed_seconds double precision NOT NULL DEFAULT 0,
    closed_seconds double precision,
    revised_at timestamptz,
    CONSTRAINT pk_usage_by_hour PRIMARY KEY (hour, tenant, kind, model_name, adapter)
);

-- What requests over HTTP used in a minute, per engine session, tenant and key, as one door has written it.
CREATE TABLE interactive_usage (
    id uuid CONSTRAINT pk_interactive_usage PRIMARY KEY,
    minute timestamptz NOT NULL,
    engine_session_id uuid NOT NULL,
    adapter text NOT NULL,
    tenant text NOT NULL,
    key text NOT NULL,
    requests bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    compute_seconds double precision NOT NULL,
    useful_seconds double precision NOT NULL
);
CREATE INDEX ix_interactive_usage_minute ON interactive_usage (minute);

CREATE TABLE usage_progress (
    name text CONSTRAINT pk_usage_progress PRIMARY KEY,
    closed_until timestamptz NOT NULL
);
INSERT INTO usage_progress VALUES ('default', '-infinity');

CREATE TABLE drain (
    started_at timestamptz CONSTRAINT pk_drain PRIMARY KEY,
    ended_at timestamptz NOT NULL,
    emptied boolean NOT NULL DEFAULT true,
    succeeded bigint NOT NULL DEFAULT 0,
    dead bigint NOT NULL DEFAULT 0,
    cancelled bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    attempts bigint NOT NULL DEFAULT 0,
    with_output bigint NOT NULL DEFAULT 0,
    with_artifact bigint NOT NULL DEFAULT 0,
    clean bigint NOT NULL DEFAULT 0,
    peak_depth bigint NOT NULL DEFAULT 0,
    wait_p50 double precision,
    wait_p95 double precision,
    wait_p99 double precision,
    run_p50 double precision,
    run_p95 double precision,
    run_p99 double precision,
    resident_seconds double precision NOT NULL DEFAULT 0,
    busy_seconds double precision NOT NULL DEFAULT 0,
    useful_seconds double precision NOT NULL DEFAULT 0,
    draft_seconds double precision NOT NULL DEFAULT 0,
    recorded_at timestamptz NOT NULL DEFAULT now()
);

-- Forecasts and what came; one row with what they are made from.
CREATE TABLE forecast (
    made_at timestamptz CONSTRAINT pk_forecast PRIMARY KEY,
    began_at timestamptz NOT NULL,
    open_jobs bigint NOT NULL,
    p50_seconds double precision NOT NULL,
    p90_seconds double precision NOT NULL,
    late_jobs bigint NOT NULL,
    arrived bigint NOT NULL DEFAULT 0,
    disturbed boolean NOT NULL DEFAULT false,
    ended_at timestamptz
);
CREATE INDEX ix_forecast_open ON forecast (made_at) WHERE ended_at IS NULL;

CREATE TABLE forecast_state (
    name text CONSTRAINT pk_forecast_state PRIMARY KEY,
    learnt jsonb NOT NULL,
    latest jsonb NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);

-- Jobs that were enqueued together, with a webhook or for someone who asks; and what is to be sent.
CREATE TABLE batch (
    id uuid CONSTRAINT pk_batch PRIMARY KEY,
    tenant text NOT NULL,
    url text,
    notify text NOT NULL,
    jobs integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    CONSTRAINT ck_batch_notify CHECK (notify IN ('job', 'batch')),
    CONSTRAINT ck_batch_url CHECK (url ~ '^https?://[^/?#]+' AND length(url) <= 2000)
);
CREATE INDEX ix_batch_open ON batch (id) WHERE ended_at IS NULL;
CREATE INDEX ix_batch_tenant ON batch (tenant, id);

CREATE TABLE webhook_delivery (
    id uuid DEFAULT gen_random_uuid() CONSTRAINT pk_webhook_delivery PRIMARY KEY,
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
    CONSTRAINT ck_webhook_delivery_ended CHECK (num_nonnulls(delivered_at, dead_at) <= 1)
);
CREATE INDEX ix_webhook_delivery_waiting ON webhook_delivery (origin, next_attempt_at)
    WHERE delivered_at IS NULL AND dead_at IS NULL;
CREATE INDEX ix_webhook_delivery_created_at ON webhook_delivery (created_at);

-- OpenAI's Batch API: files, whose content is NULL where it lies in a folder, and batches, whose jobs have their ids.
CREATE TABLE stored_file (
    id uuid CONSTRAINT pk_stored_file PRIMARY KEY,
    tenant text NOT NULL,
    purpose text NOT NULL,
    name text NOT NULL,
    size bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    deleted_at timestamptz,
    content bytea,
    CONSTRAINT ck_stored_file_purpose CHECK (purpose IN ('batch', 'batch_output'))
);
CREATE INDEX ix_stored_file_tenant ON stored_file (tenant, id) WHERE deleted_at IS NULL;
CREATE INDEX ix_stored_file_end ON stored_file (least(expires_at, deleted_at))
    WHERE least(expires_at, deleted_at) IS NOT NULL;

CREATE TABLE api_batch (
    id uuid CONSTRAINT pk_api_batch PRIMARY KEY,
    tenant text NOT NULL,
    endpoint text NOT NULL,
    status text NOT NULL DEFAULT 'validating',
    input_file_id uuid NOT NULL,
    metadata jsonb,
    output_seconds integer,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL DEFAULT now() + interval '1 day',
    in_progress_at timestamptz,
    finalizing_at timestamptz,
    completed_at timestamptz,
    failed_at timestamptz,
    expired_at timestamptz,
    cancelling_at timestamptz,
    cancelled_at timestamptz,
    lines integer NOT NULL DEFAULT 0,
    requests integer NOT NULL DEFAULT 0,
    enqueued integer NOT NULL DEFAULT 0,
    completed integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    output_file_id uuid,
    error_file_id uuid,
    errors jsonb,
    model text,
    usage jsonb,
    idempotency_key text,
    CONSTRAINT uq_api_batch_tenant_idempotency_key UNIQUE (tenant, idempotency_key),
    CONSTRAINT ck_api_batch_status CHECK (
        status IN (
            'validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired', 'cancelling', 'cancelled'
        )
    )
);
CREATE INDEX ix_api_batch_tenant ON api_batch (tenant, id);
CREATE INDEX ix_api_batch_open ON api_batch (id)
    WHERE status IN ('validating', 'in_progress', 'finalizing', 'cancelling');
