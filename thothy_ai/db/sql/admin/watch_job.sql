-- One job as a watcher sees it, the model that it names (`alias_of`: by an alias) if no engine serves it, and whether
-- the queue is paused, or what else is that holds it back (`held_*`). An engine does if no other one serves the job.
SELECT id, kind, state, attempt, failures, max_attempts, cancel_requested, not_before, not_before > now() AS later,
    delayed, worker, reason, detail, enqueued_at, started_at, finished_at, deadline, paused, queue_control.note,
    now() AS at, held.scope AS held_scope, held.name AS held_name, held.paused_at AS held_at, held.paused_by AS held_by,
    held.note AS held_note,
    CASE WHEN model IS NULL OR EXISTS (
        SELECT
        FROM engine_session
        WHERE {heard_of}
            AND coalesce(model_alias.model_name, job.model) = ANY({model_names})
    ) THEN NULL ELSE model END AS unserved_model, model_name AS alias_of
FROM job LEFT JOIN queue_control ON queue_control.name = 'default' LEFT JOIN model_alias ON alias = job.model
    LEFT JOIN LATERAL (
        SELECT *
        FROM queue_pause
        WHERE (scope, name) IN (
            ('kind', kind), ('tenant', tenant), ('model', job.model), ('model', model_alias.model_name)
        ) OR scope = 'engine' AND (
            SELECT bool_or(engine_name = name) AND bool_and(engine_name IN (
                SELECT other.name FROM queue_pause AS other WHERE other.scope = 'engine'
            ))
            FROM engine_session
            WHERE {heard_of} AND ended_at IS NULL
                AND (job.model IS NULL OR coalesce(model_alias.model_name, job.model) = ANY({model_names}))
        )
        ORDER BY scope = 'engine', paused_at
        LIMIT 1
    ) AS held ON true
WHERE id = :id
