-- Records what requests over HTTP used: the sums of each row, as they are by now. Only what a row did not have yet is
-- added to its engine's session, and to the bill if the row's hour is closed: a statement whose answer was lost may be
-- repeated. A result that came before the engine's counters proves time: the session was busy for at least what is
-- recorded. Locks in the order of all statements that add to the bill: progress, sessions by id, hours.
WITH progress AS (
    SELECT closed_until FROM usage_progress WHERE name = 'default' FOR SHARE
), given AS (
    SELECT *
    FROM unnest(
        CAST(:id AS uuid[]), CAST(:minutes AS timestamptz[]), CAST(:session_ids AS uuid[]),
        CAST(:adapters AS text[]), CAST(:tenants AS text[]), CAST(:keys AS text[]), CAST(:requests AS bigint[]),
        CAST(:prompt_tokens AS bigint[]),
        CAST(:cached_tokens AS bigint[]), CAST(:output_tokens AS bigint[]), CAST(:compute_seconds AS float8[]),
        CAST(:useful_seconds AS float8[])
    ) AS usage (
        id, minute, engine_session_id, adapter, tenant, key, requests, prompt_tokens, cached_tokens, output_tokens,
        compute_seconds, useful_seconds
    )
), sessions AS (
    SELECT id, {model_name} AS model_name, {devices} AS devices
    FROM engine_session AS session
    WHERE id = ANY(CAST(:session_ids AS uuid[]))
        AND (SELECT closed_until FROM progress) IS NOT NULL -- waits for its lock
    ORDER BY id
    FOR NO KEY UPDATE
), added AS (
    SELECT given.minute, given.engine_session_id, given.adapter, given.tenant,
        given.requests - coalesce(known.requests, 0) AS requests,
        given.prompt_tokens - coalesce(known.prompt_tokens, 0) AS prompt_tokens,
        given.cached_tokens - coalesce(known.cached_tokens, 0) AS cached_tokens,
        given.output_tokens - coalesce(known.output_tokens, 0) AS output_tokens,
        given.compute_seconds - coalesce(known.compute_seconds, 0) AS compute_seconds,
        given.useful_seconds - coalesce(known.useful_seconds, 0) AS useful_seconds
    FROM given LEFT JOIN interactive_usage AS known USING (id)
), written AS (
    INSERT INTO interactive_usage (
        id, minute, engine_session_id, adapter, tenant, key, requests, prompt_tokens, cached_tokens, output_tokens,
        compute_seconds, useful_seconds
    )
    SELECT * FROM given
    ON CONFLICT (id) DO UPDATE SET
        requests = excluded.requests, prompt_tokens = excluded.prompt_tokens,
        cached_tokens = excluded.cached_tokens, output_tokens = excluded.output_tokens,
        compute_seconds = excluded.compute_seconds, useful_seconds = excluded.useful_seconds
), counted AS (
    UPDATE engine_session
    SET interactive_seconds = interactive_seconds + seconds,
        direct_seconds = greatest(direct_seconds, interactive_seconds + seconds),
        busy_seconds = busy_seconds + greatest(0, interactive_seconds + seconds - direct_seconds)
    FROM (SELECT engine_session_id, sum(compute_seconds) AS seconds FROM added GROUP BY 1) AS sums
    WHERE id = engine_session_id AND (SELECT count(*) FROM sessions) >= 0
), late AS (
    SELECT date_trunc('hour', minute) AS hour, tenant, coalesce(model_name, '') AS model_name, adapter, requests,
        prompt_tokens,
        cached_tokens, output_tokens, compute_seconds * coalesce(devices, 1) AS busy,
        useful_seconds * coalesce(devices, 1) AS useful
    FROM added LEFT JOIN sessions ON sessions.id = engine_session_id
    WHERE minute < (SELECT closed_until FROM progress)
)
INSERT INTO usage_by_hour AS bill (
    hour, tenant, kind, model_name, adapter, requests, prompt_tokens, cached_tokens, output_tokens,
    busy_seconds, useful_seconds, interactive_seconds, closed_seconds, revised_at
)
SELECT hour, tenant, {interactive_kind}, model_name, adapter, sum(requests), sum(prompt_tokens), sum(cached_tokens),
    sum(output_tokens), sum(busy), sum(useful), sum(busy), 0, now()
FROM late
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (hour, tenant, kind, model_name, adapter) DO UPDATE SET
    requests = bill.requests + excluded.requests, prompt_tokens = bill.prompt_tokens + excluded.prompt_tokens,
    cached_tokens = bill.cached_tokens + excluded.cached_tokens,
    output_tokens = bill.output_tokens + excluded.output_tokens,
    busy_seconds = bill.busy_seconds + excluded.busy_seconds,
    useful_seconds = bill.useful_seconds + excluded.useful_seconds,
    interactive_seconds = bill.interactive_seconds + excluded.interactive_seconds, revised_at = now()
