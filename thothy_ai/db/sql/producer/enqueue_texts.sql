-- As `producer/enqueue`, for requests of which some refer to texts: `texts` has each text once, as a JSON array of rows
-- of `texts.shared`. A text that is stored already is locked, so that it is not deleted meanwhile; one that is being
-- deleted is stored again. Nothing waits for another transaction that stores the same text.
WITH {inserted_jobs},
texts AS (
    SELECT * FROM json_to_recordset(CAST(:texts AS json)) AS texts (id uuid, text_digest text, content text)
),
known AS (
    SELECT id, tenant, digest
    FROM source_text
    WHERE tenant = :tenant AND digest = ANY(ARRAY(SELECT text_digest FROM texts))
    FOR KEY SHARE SKIP LOCKED
),
stored AS (
    INSERT INTO source_text (id, tenant, digest, content)
    SELECT id, :tenant, text_digest, content
    FROM texts
    WHERE text_digest NOT IN (SELECT digest FROM known)
        AND text_digest IN (SELECT text_digest FROM given JOIN inserted USING (id))
    RETURNING id, tenant, digest
),
{places_of_texts},
bodies AS (
    INSERT INTO job_request (job_id, request, text_field, text_id)
    SELECT
        given.id,
        {divided_request}
    FROM given JOIN inserted USING (id) LEFT JOIN places USING (text_digest)
)
SELECT {taken_jobs} AS taken, {wake_dispatcher}
