-- The stored briefs that are wanted, in the versions that are; the newest one where none is.
SELECT wanted.name, wanted.version AS asked, found.version, found.body
FROM json_to_recordset(CAST(:wanted AS json)) AS wanted (name text, version integer)
CROSS JOIN LATERAL (
    SELECT brief.version, brief.body
    FROM brief
    WHERE brief.tenant = :tenant AND brief.name = wanted.name
        AND (wanted.version IS NULL OR brief.version = wanted.version)
    ORDER BY brief.version DESC
    LIMIT 1
) AS found
