-- All aliases of models and adapters, with the number of engines with a recent heartbeat that serve each.
SELECT alias, model_name, changed_at, (
    SELECT count(DISTINCT engine_name)
    FROM engine_session
    WHERE {heard_of} AND ended_at IS NULL AND model_alias.model_name = ANY({model_names})
) AS engines
FROM model_alias
ORDER BY alias
