-- Removes an alias of a model.
DELETE FROM model_alias WHERE alias = :alias
