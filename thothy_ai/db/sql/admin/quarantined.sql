-- Open jobs that were on an engine when it died, the most charged first (worker/quarantine.py).
SELECT id, kind, tenant, state, engine_deaths, attempt, model, engine_name
FROM job
WHERE {open} AND engine_deaths > 0 AND (CAST(:tenant AS text) IS NULL OR tenant = :tenant)
ORDER BY engine_deaths DESC, id
LIMIT :limit
