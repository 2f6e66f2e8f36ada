-- Points an alias at a model, unless that would make an alias of an alias: `chained` is then the one in the middle.
WITH chain AS (
    SELECT CASE WHEN alias = :model_name THEN alias ELSE model_name END AS middle
    FROM model_alias
    WHERE alias = :model_name OR model_name = :alias
    LIMIT 1
), former AS (
    SELECT model_name FROM model_alias WHERE alias = :alias
), pointed AS (
    INSERT INTO model_alias (alias, model_name)
    SELECT :alias, :model_name WHERE NOT EXISTS (SELECT FROM chain)
    ON CONFLICT (alias) DO UPDATE SET model_name = excluded.model_name, changed_at = now()
)
SELECT (SELECT model_name FROM former) AS before, (SELECT middle FROM chain) AS chained
