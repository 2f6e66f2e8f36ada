-- A job's attempts, with the model that ran each and the device-seconds that it took: an engine on several GPUs
-- occupies all of them in each of its seconds.
SELECT a.job_id, a.attempt, a.tenant, a.kind, a.worker, a.engine_session_id, a.started_at, a.finished_at, a.outcome,
    a.reason, a.detail, a.prompt_tokens, a.cached_tokens, a.output_tokens, a.compute_seconds,
    a.compute_seconds * greatest(s.gpus, 1) AS device_seconds, s.model, s.gpus,
    coalesce(s.declared, FALSE) AS declared
FROM attempt AS a
LEFT JOIN engine_session AS s ON s.id = a.engine_session_id
WHERE a.job_id = :job_id
ORDER BY a.attempt
