-- Engines by the name of their model: those that take jobs, and in `returning` those that were ready a short time ago
-- and start again: in how many seconds each is ready if it loads as long as before. One that was killed or failed is
-- expected back for twice that time, at least a minute; one that was stopped, or whose machine is silent, if it loads
-- by then. `capacity`: sequences at once, 0 if an engine does not say; `joined`: when the last one became ready.
WITH last_ready AS (
    SELECT DISTINCT ON (own_name)
        *,
        ended_at IS NULL AND state = 'ready' AND heartbeat_at > now() - {engine_silence} AS ready,
        coalesce(ended_at, heartbeat_at) AS gone_at
    FROM (
        SELECT *, coalesce(nullif(engine_name, ''), CAST(id AS text)) AS own_name,
            coalesce(ready_at - started_at, interval '30 seconds') AS load
        FROM engine_session
        WHERE heartbeat_at > now() - interval '1 hour' AND (ready_at IS NOT NULL OR state = 'ready')
    ) AS recent
    ORDER BY own_name, started_at DESC
), expected AS (
    SELECT
        *,
        NOT ready AND now() < gone_at + greatest(2 * load, interval '60 seconds')
        AND (
            end_reason IN ('killed', 'failed')
            OR EXISTS (
                SELECT
                FROM engine_session AS next
                WHERE next.engine_name = last_ready.engine_name AND next.state = 'loading' AND next.ended_at IS NULL
            )
        ) AS returns
    FROM last_ready
)
SELECT
    model_name AS model,
    count(*) FILTER (WHERE ready) AS engines,
    min(capacity) AS capacity,
    avg(greatest(gpus, 1))::float8 AS devices,
    bool_and(gpus > 0) AS on_gpu,
    extract(epoch FROM max(coalesce(ready_at, started_at)) FILTER (WHERE ready))::float8 AS joined,
    coalesce(
        array_agg(
            greatest(extract(epoch FROM gone_at + load - now()), extract(epoch FROM load) / 4)::float8
        ) FILTER (WHERE returns),
        '{}'
    ) AS returning
FROM expected
WHERE ready OR returns
GROUP BY model_name
