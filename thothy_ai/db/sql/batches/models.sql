-- The names that requests may ask for: of models and adapters that were ever served here, and aliases.
SELECT unnest({model_names}) AS name FROM engine_session WHERE model_name <> ''
UNION
SELECT alias FROM model_alias
