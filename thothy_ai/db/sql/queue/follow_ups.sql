-- Inserts the jobs that artifacts ask for, with their requests, and wakes the dispatcher. Texts as in
-- `producer/enqueue`; a new one takes the id of its first job. A job that names no model and whose kind names none runs
-- on its parent's.
-- `rows` is a JSON array of rows of `queue.follow_ups`. The caller has fenced the parents in this transaction.
WITH given AS (
    SELECT *
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS follow_up (
        id uuid, parent_id uuid, tenant text, kind text, priority smallint, deadline timestamptz,
        source_key text, digest text, max_attempts smallint, max_compute_seconds float8, model text, request text,
        text_field text, text_digest text, content text
    )
    WHERE (SELECT reason FROM job AS parent WHERE parent.id = follow_up.parent_id) IS DISTINCT FROM 'superseded'
), texts AS (
    SELECT DISTINCT ON (tenant, text_digest) id, tenant, text_digest, content
    FROM given
    WHERE text_digest IS NOT NULL
    ORDER BY tenant, text_digest, id
), inserted AS (
    INSERT INTO job (
        id, parent_id, tenant, kind, priority, deadline, source_key, request_digest, max_attempts, max_compute_seconds,
        model, batch_id
    )
    SELECT id, parent_id, tenant, kind, priority, deadline, source_key, digest, max_attempts, max_compute_seconds,
        coalesce(model, (SELECT parent.model FROM job AS parent WHERE parent.id = given.parent_id)),
        (SELECT batch_id FROM job AS parent WHERE parent.id = given.parent_id)
    FROM given
    RETURNING id
), known AS (
    SELECT source_text.id, source_text.tenant, source_text.digest
    FROM texts JOIN source_text ON source_text.tenant = texts.tenant AND source_text.digest = text_digest
    FOR KEY SHARE OF source_text SKIP LOCKED
), stored AS (
    INSERT INTO source_text (id, tenant, digest, content)
    SELECT id, tenant, text_digest, content
    FROM texts
    WHERE (tenant, text_digest) NOT IN (SELECT tenant, digest FROM known)
    RETURNING id, tenant, digest
), {places_of_texts}, bodies AS (
    INSERT INTO job_request (job_id, request, text_field, text_id)
    SELECT
        id,
        {divided_request}
    FROM given LEFT JOIN places USING (tenant, text_digest)
)
SELECT id, {wake_dispatcher} FROM inserted
