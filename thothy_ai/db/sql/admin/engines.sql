-- Engine sessions that have not ended, and those that ended in the last `:ended_seconds`: where they run, how they are,
-- their running jobs, and output tokens per second over the last minute (of attempts that ended in it).
SELECT
    id, engine_name AS name, machine, address, model, model_name, adapters, device, devices, gpus, capacity,
    started_at, ready_at,
    ended_at, end_reason,
    CASE
        WHEN ended_at IS NOT NULL THEN 'ended'
        WHEN heartbeat_at <= now() - {engine_silence} THEN 'silent'
        ELSE state
    END AS state,
    extract(epoch FROM now() - heartbeat_at)::float8 AS heartbeat_age,
    extract(epoch FROM now() - coalesce(ready_at, started_at))::float8 AS ready_seconds,
    busy_seconds, coalesce(running, 0) AS running,
    coalesce(tokens, 0) / least(60, greatest(1, extract(epoch FROM now() - coalesce(ready_at, started_at))))::float8
        AS tokens_per_second,
    running_sequences, waiting_sequences, kv_used, memory_used, memory_total,
    EXISTS (SELECT FROM queue_pause WHERE scope = 'engine' AND name = engine_name) AS paused
FROM engine_session
LEFT JOIN (
    SELECT engine_session_id, count(*) AS running FROM job WHERE state = 'running' GROUP BY engine_session_id
) AS now_running ON now_running.engine_session_id = id
LEFT JOIN (
    SELECT engine_session_id, sum(output_tokens) AS tokens
    FROM attempt
    WHERE finished_at > now() - interval '60 seconds'
    GROUP BY engine_session_id
) AS last_minute ON last_minute.engine_session_id = id
WHERE ended_at IS NULL OR ended_at > now() - make_interval(secs => :ended_seconds)
ORDER BY machine, engine_name, started_at
