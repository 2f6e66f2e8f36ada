-- As `producer/enqueue`, for requests of which some refer to texts: `texts` has each text once, as a JSON array of
-- rows of `texts.shared`.
-- A text that is stored already is locked, so that it is not deleted meanwhile; one that is being deleted is stored again.
-- Nothing waits for another transaction that stores the same text.
WITH {inserted_jobs},
texts AS (
    SELECT * FROM json_to_recordset(CAST(:texts AS json)) AS texts (id uuid, text_digest text, content text)
),
known AS (
    SELECT id, digest
    FROM source_text
    WHERE tenant = :tenant AND digest = ANY(ARRAY(SELECT text_digest FROM texts)) AND {shares_texts}
    FOR KEY SHARE SKIP LOCKED
),
stored AS (
    INSERT INTO source_text (id, tenant, digest, content)
    SELECT id, :tenant, text_digest, content
    FROM texts
    WHERE {shares_texts} AND text_digest NOT IN (SELECT digest FROM known)
        AND text_digest IN (SELECT text_digest FROM given JOIN inserted USING (id))
    RETURNING id, digest
),
places AS (
    SELECT digest AS text_digest, min(CAST(id AS text)) AS place
    FROM (SELECT id, digest FROM known UNION ALL SELECT id, digest FROM stored) AS found
    GROUP BY digest
),
bodies AS (
    INSERT INTO job_request (job_id, request, text_field, text_id)
    SELECT
        given.id,
        CASE
            WHEN place IS NULL AND text_field IS NOT NULL
            THEN CAST(request AS jsonb) || jsonb_build_object(text_field, content)
            ELSE CAST(request AS jsonb)
        END,
        CASE WHEN place IS NOT NULL THEN text_field END,
        CAST(place AS uuid)
    FROM given JOIN inserted USING (id) LEFT JOIN places USING (text_digest) LEFT JOIN texts USING (text_digest)
)
SELECT {taken_jobs} AS taken, {wake_dispatcher}
