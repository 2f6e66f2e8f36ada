-- The sources of the jobs that are dispatched or running, with the engine that each was sent to last.
SELECT DISTINCT ON (source_key) source_key, engine_name
FROM job
WHERE (state = 'dispatched' OR state = 'running') AND engine_name IS NOT NULL
ORDER BY source_key, dispatched_at DESC
