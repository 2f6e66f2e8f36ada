-- The names that requests may ask for: of models that were ever served here, and aliases.
SELECT model_name AS name FROM engine_session WHERE model_name <> ''
UNION
SELECT alias FROM model_alias
