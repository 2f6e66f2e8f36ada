-- Inserts jobs with their requests, all or none, and wakes the dispatcher. Parallel arrays, one element per job; and the
-- texts that their requests refer to, each once.
-- Returns the ids that were not inserted because their idempotency key is taken.
-- Ordered by key, so that two batches over the same keys cannot deadlock.
-- A text that is stored already is locked, so that it is not deleted meanwhile; one that is being deleted is stored again.
-- Nothing waits for another transaction that stores the same text.
WITH given AS (
    SELECT *
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:kinds AS text[]), CAST(:priorities AS smallint[]),
        CAST(:deadlines AS timestamptz[]), CAST(:not_befores AS timestamptz[]), CAST(:source_keys AS text[]),
        CAST(:idempotency_keys AS text[]), CAST(:digests AS text[]), CAST(:max_attempts AS smallint[]),
        CAST(:max_compute_seconds AS float8[]), CAST(:models AS text[]), CAST(:requests AS text[]),
        CAST(:text_fields AS text[]), CAST(:text_digests AS text[])
    ) AS given (
        id, kind, priority, deadline, not_before, source_key, idempotency_key, digest, max_attempts,
        max_compute_seconds, model, request, text_field, text_digest
    )
),
texts AS (
    SELECT *
    FROM unnest(CAST(:new_text_ids AS uuid[]), CAST(:new_text_digests AS text[]), CAST(:new_texts AS text[]))
        AS texts (id, text_digest, content)
),
inserted AS (
    INSERT INTO job (id, tenant, kind, priority, deadline, not_before, scheduled_for, delayed, source_key,
                     idempotency_key, request_digest, max_attempts, max_compute_seconds, model, batch_id)
    SELECT id, :tenant, kind, priority, deadline, coalesce(not_before, now()),
           CASE WHEN not_before > now() THEN not_before END,
           coalesce(not_before > now() + {delay_margin}, false),
           source_key, idempotency_key, digest, max_attempts, max_compute_seconds, model,
           CAST(:batch_id AS uuid)
    FROM given
    ORDER BY idempotency_key, id
    ON CONFLICT (tenant, idempotency_key) DO NOTHING
    RETURNING id
),
known AS (
    SELECT id, digest
    FROM source_text
    WHERE tenant = :tenant AND digest = ANY(CAST(:new_text_digests AS text[])) AND {shares_texts}
    FOR KEY SHARE SKIP LOCKED
),
stored AS (
    INSERT INTO source_text (id, tenant, digest, content)
    SELECT id, :tenant, text_digest, content
    FROM texts
    WHERE {shares_texts} AND text_digest NOT IN (SELECT digest FROM known)
        AND text_digest IN (SELECT text_digest FROM given JOIN inserted USING (id))
    RETURNING id, digest
),
places AS (
    SELECT digest AS text_digest, min(CAST(id AS text)) AS place
    FROM (SELECT id, digest FROM known UNION ALL SELECT id, digest FROM stored) AS found
    GROUP BY digest
),
bodies AS (
    INSERT INTO job_request (job_id, request, text_field, text_id)
    SELECT
        given.id,
        CASE
            WHEN place IS NULL AND text_field IS NOT NULL
            THEN CAST(request AS jsonb) || jsonb_build_object(text_field, content)
            ELSE CAST(request AS jsonb)
        END,
        CASE WHEN place IS NOT NULL THEN text_field END,
        CAST(place AS uuid)
    FROM given JOIN inserted USING (id) LEFT JOIN places USING (text_digest) LEFT JOIN texts USING (text_digest)
)
SELECT array(SELECT CAST(id AS text) FROM given EXCEPT SELECT CAST(id AS text) FROM inserted) AS taken, {wake_dispatcher}
