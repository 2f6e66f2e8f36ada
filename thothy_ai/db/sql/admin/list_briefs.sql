-- Versions of stored briefs, by name, the newest first; without `name`, the newest of each that was not removed.
SELECT tenant, name, version, body, saved_by, saved_at
FROM (
    SELECT *, row_number() OVER (PARTITION BY tenant, name ORDER BY version DESC) AS age
    FROM brief
    WHERE (CAST(:tenant AS text) IS NULL OR tenant = :tenant) AND (CAST(:name AS text) IS NULL OR name = :name)
) AS known
WHERE CAST(:name AS text) IS NOT NULL OR (age = 1 AND body IS NOT NULL)
ORDER BY tenant, name, version DESC
