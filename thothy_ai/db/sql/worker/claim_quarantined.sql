-- Claims quarantined jobs for one engine (worker/quarantine.py): of those that wait, only the most charged, and none
-- while one that must run alone runs there. Some of those that must run alone are claimed at once; of the others as
-- many as may still run there. Besides the jobs given, which wait in this worker, any that was dispatched and names no
-- model may be claimed: thus those of one crash spread over all engines, and the message of one that is taken from
-- another worker turns stale. The caller holds `quarantine_lock`. Returns the claimed jobs with their attempts, and
-- those given that still wait; other given ones are stale.
WITH given AS (
    SELECT DISTINCT id, dispatch_no  -- a message may have been delivered twice
    FROM {hints} AS hint (id, dispatch_no)
), here AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE engine_deaths > 0) AS once, count(*) FILTER (WHERE {in_small_group}) AS twice,
        count(*) FILTER (WHERE {runs_alone}) AS lone
    FROM job
    WHERE state = 'running' AND {on_this_engine}
), eligible AS MATERIALIZED (  -- not once per dispatched job
    SELECT id, dispatch_no, TRUE AS given
    FROM given
    UNION ALL
    SELECT id, dispatch_no, FALSE
    FROM job
    WHERE state = 'dispatched' AND engine_deaths > 0 AND model IS NULL
        AND (id, dispatch_no) NOT IN (SELECT id, dispatch_no FROM given)
), free AS (
    SELECT job.id, dispatch_no, given, engine_deaths, state AS was, attempt AS number, started_at AS since,
        engine_session_id AS meant_for, adapter AS meant_with, greatest(enqueued_at, not_before) AS due_at,
        least(engine_deaths, {deaths_to_run_alone}) AS charges,
        max(least(engine_deaths, {deaths_to_run_alone})) FILTER (WHERE state = 'dispatched') OVER () AS most_charges,
        row_number() OVER (
            PARTITION BY state, least(engine_deaths, {deaths_to_run_alone}) ORDER BY {planned_order}
        ) AS place
    FROM job JOIN eligible USING (id, dispatch_no)
    WHERE job.id = ANY(ARRAY(SELECT eligible.id FROM eligible)) AND {claimable}
), chosen AS (
    SELECT id
    FROM job
    WHERE id = ANY(ARRAY(
        SELECT free.id
        FROM free, here
        WHERE was = 'running'  -- its claim was lost
            OR lone = 0 AND charges = most_charges AND place <= CASE
                WHEN {runs_alone} THEN CAST(:lone AS bigint)
                WHEN {in_small_group} THEN CAST(:twice AS bigint) - twice
                ELSE CAST(:once AS bigint) - once
            END
    ))
    ORDER BY id
    FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE job
    SET state = 'running', attempt = attempt + 1, worker = :worker, started_at = now(),
        engine_session_id = CAST(:engine_session_id AS uuid), adapter = {adapter},
        engine_name = coalesce((
            SELECT session.engine_name
            FROM engine_session AS session
            WHERE session.id = CAST(:engine_session_id AS uuid)
        ), job.engine_name),
        lease_until = now() + make_interval(secs => :lease_seconds), reason = NULL, detail = NULL
    FROM free
    WHERE job.id = free.id AND job.dispatch_no = free.dispatch_no AND job.id = ANY(ARRAY(SELECT id FROM chosen))
        AND (state = 'dispatched' AND NOT cancel_requested OR state = 'running' AND worker = :worker)
    RETURNING job.*
), never_ran AS (
    INSERT INTO attempt (job_id, attempt, tenant, kind, worker, engine_session_id, adapter, started_at, outcome, reason)
    SELECT id, number, tenant, kind, worker, meant_for, meant_with, since, 'released', 'answer_lost'
    FROM free JOIN claimed USING (id)
    WHERE was = 'running'
)
SELECT free.id, free.dispatch_no, attempt, tenant, kind, failures, max_attempts, max_compute_seconds,
    free.engine_deaths, priority, deadline, source_key, {whole_request}, {used_before}, {rejected_before},
    claimed.attempt - budget_after AS tries, extract(epoch FROM now() - due_at)::float8 AS waited_seconds, adapter
FROM free LEFT JOIN claimed USING (id) LEFT JOIN job_request ON job_id = claimed.id
WHERE given OR attempt IS NOT NULL
ORDER BY {planned_order}
