-- Inserts jobs with their requests, all or none, and wakes the dispatcher. Parallel arrays, one element per job.
-- Returns the ids that were not inserted because their idempotency key is taken.
-- Ordered by key, so that two batches over the same keys cannot deadlock.
WITH given AS (
    SELECT *
    FROM unnest(
        CAST(:ids AS uuid[]), CAST(:kinds AS text[]), CAST(:priorities AS smallint[]),
        CAST(:deadlines AS timestamptz[]), CAST(:not_befores AS timestamptz[]), CAST(:source_keys AS text[]),
        CAST(:idempotency_keys AS text[]), CAST(:digests AS text[]), CAST(:max_attempts AS smallint[]),
        CAST(:max_compute_seconds AS float8[]), CAST(:models AS text[]), CAST(:requests AS text[])
    ) AS given (
        id, kind, priority, deadline, not_before, source_key, idempotency_key, digest, max_attempts,
        max_compute_seconds, model, request
    )
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
bodies AS (
    INSERT INTO job_request (job_id, request)
    SELECT id, CAST(request AS jsonb) FROM given JOIN inserted USING (id)
)
SELECT array(SELECT CAST(id AS text) FROM given EXCEPT SELECT CAST(id AS text) FROM inserted) AS taken, {wake_dispatcher}
