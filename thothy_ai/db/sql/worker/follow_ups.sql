-- Inserts the jobs that accepted artifacts ask for, with their requests, and wakes the dispatcher.
-- A job that names no model and whose kind names none runs on its parent's.
-- `rows` is a JSON array of `worker.finish.FollowUp`. The caller has fenced the parents in this transaction.
WITH given AS (
    SELECT *
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS follow_up (
        id uuid, parent_id uuid, tenant text, kind text, priority smallint, deadline timestamptz,
        source_key text, digest text, max_attempts smallint, max_compute_seconds float8, model text,
        request text
    )
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
), bodies AS (
    INSERT INTO job_request (job_id, request) SELECT id, CAST(request AS jsonb) FROM given
)
SELECT id, {wake_dispatcher} FROM inserted
