-- Ends attempts, fenced on (id, attempt, worker, running): writes the job's next state, the attempt's row, the artifact
-- and any unusual event. Returns the attempts that were still this worker's. Retrying a job whose cancellation was
-- requested cancels it. `rows` is a JSON array of `worker.record.finish.Finish`.
WITH given AS (
    SELECT *
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS finish (
        id uuid, attempt integer, state text, outcome text, event text, reason text, detail text,
        delay_seconds float8, failures smallint, engine_deaths smallint, engine_session_id uuid,
        prompt_tokens integer, cached_tokens integer, output_tokens integer, compute_seconds float8,
        verification_seconds float8, saved_tokens integer,
        verdict text, locale text, body jsonb, text text, provenance jsonb, verification jsonb,
        findings jsonb, draft boolean, signature bigint[], needs text
    )
), ours AS (
    SELECT job.id, job.attempt
    FROM job JOIN given USING (id, attempt)
    WHERE job.state = 'running' AND job.worker = :worker
    ORDER BY job.id
    FOR UPDATE OF job
), ended AS (
    UPDATE job
    SET state = CASE WHEN given.state = 'queued' AND cancel_requested THEN 'cancelled' ELSE given.state END,
        finished_at = CASE WHEN given.state <> 'queued' OR cancel_requested THEN now() END,
        not_before = CASE
            WHEN given.state = 'queued' THEN now() + make_interval(secs => given.delay_seconds) ELSE not_before
        END,
        failures = job.failures + given.failures, engine_deaths = job.engine_deaths + given.engine_deaths,
        worker = NULL, lease_until = NULL,
        reason = CASE
            WHEN job.reason = 'superseded' THEN job.reason  -- while it ran
            WHEN given.state <> 'queued' OR NOT cancel_requested THEN given.reason
        END,
        detail = CASE
            WHEN job.reason = 'superseded' THEN job.detail
            WHEN given.state <> 'queued' OR NOT cancel_requested THEN given.detail
        END,
        review = CASE WHEN given.state = 'succeeded' THEN
            CASE WHEN job.reason = 'superseded' THEN 'superseded' ELSE needs END
        END
    FROM ours JOIN given USING (id, attempt)
    WHERE job.id = ours.id
    RETURNING job.id, job.attempt, job.tenant, job.kind, job.state, job.started_at, job.adapter
), tried AS (
    INSERT INTO attempt (
        job_id, attempt, tenant, kind, worker, engine_session_id, adapter, started_at, outcome, reason, detail,
        prompt_tokens, cached_tokens, output_tokens, compute_seconds, verification_seconds, saved_tokens
    )
    SELECT id, attempt, tenant, kind, :worker, engine_session_id, adapter, started_at, outcome, reason, given.detail,
        prompt_tokens, cached_tokens, output_tokens, compute_seconds, verification_seconds, saved_tokens
    FROM ended JOIN given USING (id, attempt)
), judged AS (
    INSERT INTO artifact (
        job_id, kind, locale, attempt, tenant, verdict, reason, body, text, provenance, verification,
        findings, draft, signature
    )
    SELECT id, kind, locale, attempt, tenant, verdict, CASE WHEN verdict = 'rejected' THEN reason END, body, text,
        provenance, verification, coalesce(findings, '[]'), draft, signature
    FROM ended JOIN given USING (id, attempt)
    WHERE verdict IS NOT NULL
    ON CONFLICT DO NOTHING
), noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, event, concat_ws(': ', reason, given.detail)
    FROM ended JOIN given USING (id, attempt)
    WHERE event IS NOT NULL
), notified AS (
    SELECT {notify_waiters}
    FROM (
        SELECT id, (row_number() OVER () - 1) / {ids_per_notification} AS part FROM ended WHERE state <> 'queued'
    ) AS parts
    GROUP BY part
)
SELECT id, attempt, state, CASE WHEN state = 'queued' THEN {wake_dispatcher} END
FROM ended
WHERE (SELECT count(*) FROM notified) >= 0  -- what nothing reads is not run
