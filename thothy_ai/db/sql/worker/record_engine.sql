-- An engine session as its own side reports it: how far it is, where it runs, its counters, which only grow, and
-- gauges. Times come as ages in seconds: only this clock counts. The last heartbeat of an engine that was killed is as
-- old as its last counters; without an age, it stays what it is. A session that was taken for dead is open again.
INSERT INTO engine_session (
    id, engine_name, machine, address, model_name, adapters, model, device, devices, gpus, dtype, num_blocks,
    block_size, capacity, declared, state, started_at, ready_at, heartbeat_at, ended_at, end_reason,
    busy_seconds, prefill_seconds, decode_seconds, direct_seconds, prompt_tokens, cached_tokens, output_tokens,
    running_sequences, waiting_sequences, kv_used, memory_used, memory_total
)
VALUES (
    CAST(:id AS uuid), :engine_name, :machine, :address, :model_name, CAST(:adapters AS jsonb), :model, :device,
    CAST(:devices AS text[]), :gpus,
    :dtype, :num_blocks, :block_size, :capacity,
    :declared, :state, now() - make_interval(secs => :age), now() - make_interval(secs => CAST(:ready_age AS float8)),
    coalesce(now() - make_interval(secs => CAST(:heartbeat_age AS float8)), now()),
    CASE WHEN :state = 'ended' THEN now() END, :end_reason,
    :busy_seconds, :prefill_seconds, :decode_seconds, :direct_seconds, :prompt_tokens, :cached_tokens, :output_tokens,
    :running_sequences, :waiting_sequences, :kv_used, :memory_used, :memory_total
)
ON CONFLICT (id) DO UPDATE SET
    engine_name = excluded.engine_name, machine = excluded.machine, address = excluded.address,
    model_name = excluded.model_name, model = excluded.model,
    adapters = CASE  -- many are stored apart, and not written again while they stay the same
        WHEN engine_session.adapters = excluded.adapters THEN engine_session.adapters ELSE excluded.adapters
    END,
    device = excluded.device, devices = excluded.devices,
    gpus = excluded.gpus, dtype = excluded.dtype, num_blocks = excluded.num_blocks, block_size = excluded.block_size,
    capacity = excluded.capacity, declared = excluded.declared, state = excluded.state,
    started_at = least(engine_session.started_at, excluded.started_at),
    ready_at = coalesce(engine_session.ready_at, excluded.ready_at),
    heartbeat_at = coalesce(
        now() - make_interval(secs => CAST(:heartbeat_age AS float8)), engine_session.heartbeat_at
    ),
    ended_at = excluded.ended_at, end_reason = excluded.end_reason, settled_at = NULL,
    busy_seconds = greatest(engine_session.busy_seconds, excluded.busy_seconds),
    prefill_seconds = greatest(engine_session.prefill_seconds, excluded.prefill_seconds),
    decode_seconds = greatest(engine_session.decode_seconds, excluded.decode_seconds),
    direct_seconds = greatest(engine_session.direct_seconds, excluded.direct_seconds),
    prompt_tokens = greatest(engine_session.prompt_tokens, excluded.prompt_tokens),
    cached_tokens = greatest(engine_session.cached_tokens, excluded.cached_tokens),
    output_tokens = greatest(engine_session.output_tokens, excluded.output_tokens),
    running_sequences = excluded.running_sequences, waiting_sequences = excluded.waiting_sequences,
    kv_used = excluded.kv_used, memory_used = excluded.memory_used, memory_total = excluded.memory_total
