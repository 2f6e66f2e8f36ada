-- What requests over HTTP used from `since` to `until`, by key, model and adapter; those without a key have an empty
-- one.
SELECT key, tenant, {model_name} AS model_name, adapter, {interactive_usage}
FROM interactive_usage AS asked LEFT JOIN engine_session AS session ON session.id = engine_session_id
WHERE minute >= :since AND minute < :until
GROUP BY 1, 2, 3, 4
ORDER BY 1, 2, 3, 4
