-- An engine session and its counters. Several workers may report the same session; counters only grow.
INSERT INTO engine_session (
    id, model, device, dtype, gpus, num_blocks, block_size, started_at, heartbeat_at,
    busy_seconds, prefill_seconds, decode_seconds, prompt_tokens, cached_tokens, output_tokens
)
VALUES (
    CAST(:id AS uuid), :model, :device, :dtype, :gpus, :num_blocks, :block_size, to_timestamp(:started_at), now(),
    :busy_seconds, :prefill_seconds, :decode_seconds, :prompt_tokens, :cached_tokens, :output_tokens
)
ON CONFLICT (id) DO UPDATE SET
    heartbeat_at = now(), ended_at = NULL, settled_at = NULL,
    busy_seconds = greatest(engine_session.busy_seconds, excluded.busy_seconds),
    prefill_seconds = greatest(engine_session.prefill_seconds, excluded.prefill_seconds),
    decode_seconds = greatest(engine_session.decode_seconds, excluded.decode_seconds),
    prompt_tokens = greatest(engine_session.prompt_tokens, excluded.prompt_tokens),
    cached_tokens = greatest(engine_session.cached_tokens, excluded.cached_tokens),
    output_tokens = greatest(engine_session.output_tokens, excluded.output_tokens)
