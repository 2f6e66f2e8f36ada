-- Attempts that ended in the window, by kind and the model that ran them. `attempts`: those that ended by themselves,
-- not with an engine, a worker or their job's end; the compute-seconds are of all. Durations are of those with output.
-- x: how many sequences shared the engine with an attempt; y: seconds per token of output.
SELECT
    kind,
    model,
    count(*) FILTER (WHERE outcome IN ('succeeded', 'rejected', 'failed')) AS attempts,
    sum(compute_seconds)::float8 AS compute,
    sum(compute_seconds * compute_seconds)::float8 AS compute_squares,
    count(*) FILTER (WHERE produced) AS runs,
    coalesce(sum(ln(run)) FILTER (WHERE produced), 0)::float8 AS log_run,
    coalesce(sum(ln(run) * ln(run)) FILTER (WHERE produced), 0)::float8 AS log_run_squares,
    count(*) FILTER (WHERE measured) AS n,
    coalesce(sum(run / compute_seconds) FILTER (WHERE measured), 0)::float8 AS x,
    coalesce(sum(run / output_tokens) FILTER (WHERE measured), 0)::float8 AS y,
    coalesce(sum((run / compute_seconds) * (run / compute_seconds)) FILTER (WHERE measured), 0)::float8 AS xx,
    coalesce(sum((run / compute_seconds) * (run / output_tokens)) FILTER (WHERE measured), 0)::float8 AS xy
FROM (
    SELECT
        attempt.kind,
        coalesce(model_name, '') AS model,
        compute_seconds,
        attempt.output_tokens,
        greatest(extract(epoch FROM attempt.finished_at - attempt.started_at), 0.001)::float8 AS run,
        outcome,
        outcome IN ('succeeded', 'rejected') AS produced,
        outcome IN ('succeeded', 'rejected') AND compute_seconds > 0 AND attempt.output_tokens > 0 AS measured
    FROM attempt LEFT JOIN engine_session ON engine_session.id = engine_session_id
    WHERE attempt.finished_at > :since AND attempt.finished_at <= :until
) AS ended
GROUP BY kind, model
