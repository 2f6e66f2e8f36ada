-- Stores the next version of a brief, unless its newest one says the same. NULL as the body removes it.
INSERT INTO brief (tenant, name, version, body, saved_by)
SELECT :tenant, :name, coalesce(newest.version, 0) + 1, CAST(:body AS jsonb), :saved_by
FROM (SELECT) AS always
LEFT JOIN LATERAL (
    SELECT brief.version, brief.body
    FROM brief
    WHERE brief.tenant = :tenant AND brief.name = :name
    ORDER BY brief.version DESC
    LIMIT 1
) AS newest ON true
WHERE newest.body IS DISTINCT FROM CAST(:body AS jsonb)
RETURNING version
