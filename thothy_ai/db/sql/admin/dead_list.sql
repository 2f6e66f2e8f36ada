-- Dead jobs for a list, the most recent deaths first.
SELECT id, kind, reason, detail, attempt, failures, engine_deaths, priority, tenant, enqueued_at, finished_at
FROM job
WHERE {selected_dead}
ORDER BY finished_at DESC, id DESC
LIMIT :limit
