-- Whether a job is open, due and of a model that is served, the first and the last finish that no drain has, and
-- whether usage is still unknown. Every part reads a few entries of an index, however long the queue is. A job that
-- waits for its time keeps no drain open; one that waits for its next attempt does. Of queued jobs, some are looked at:
-- before many are due, the first ones are dispatched. An engine that has reported within `absence_seconds` may come
-- back: its models count as served. No drain begins before `empty_at` (NULL: not known), when nothing could run.
WITH served AS (
    SELECT DISTINCT unnest({model_names}) AS model_name
    FROM engine_session
    WHERE heartbeat_at > now() - make_interval(secs => :absence_seconds)
), askable AS (
    SELECT alias AS model FROM model_alias JOIN served USING (model_name)
    UNION
    SELECT model_name FROM served WHERE NOT EXISTS (SELECT FROM model_alias WHERE alias = model_name)
), last AS (
    SELECT ended_at, emptied FROM drain ORDER BY ended_at DESC LIMIT 1
), recorded AS (
    SELECT
        greatest(
            coalesce((SELECT ended_at FROM last), now() - interval '1 day'), CAST(:empty_at AS timestamptz)
        ) AS until
)
SELECT
    EXISTS (SELECT FROM job WHERE state = 'running')
    OR EXISTS (SELECT FROM job WHERE state = 'dispatched')
    OR EXISTS (
        SELECT FROM (
            SELECT attempt, not_before FROM job WHERE state = 'queued' AND NOT delayed AND model IS NULL LIMIT 1000
        ) AS looked_at
        WHERE attempt > 0 OR not_before <= now()
    )
    OR EXISTS (
        SELECT FROM askable CROSS JOIN LATERAL (
            SELECT attempt, not_before
            FROM job
            WHERE state = 'queued' AND NOT delayed AND job.model = askable.model
            LIMIT 1000
        ) AS looked_at
        WHERE attempt > 0 OR not_before <= now()
    ) AS is_open,
    until AS since,
    coalesce(
        (SELECT emptied FROM last WHERE ended_at = until), until = CAST(:empty_at AS timestamptz), false
    ) AS was_empty,
    (SELECT min(finished_at) FROM job WHERE finished_at > until) AS first_finish,
    (SELECT max(finished_at) FROM job WHERE finished_at > until) AS last_finish,
    EXISTS (
        SELECT FROM engine_session
        WHERE settled_at IS NULL AND (ended_at IS NOT NULL OR heartbeat_at < now() - interval '20 seconds')
    ) AS is_unsettled,
    now() AS now
FROM recorded
