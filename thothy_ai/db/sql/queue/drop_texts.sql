-- Deletes those of the next `limit` texts to which no request refers. Returns the last one that was looked at. A text
-- that a producer has locked is skipped. If a producer has referred to one since this began, the foreign key makes the
-- statement fail; nothing is deleted then.
WITH next AS (
    SELECT id
    FROM source_text
    WHERE id > CAST(:after AS uuid)
    ORDER BY id
    LIMIT :limit
), unused AS (
    SELECT id
    FROM source_text
    WHERE id = ANY(ARRAY(SELECT id FROM next)) AND NOT EXISTS (SELECT FROM job_request WHERE text_id = source_text.id)
    FOR UPDATE SKIP LOCKED
), dropped AS (
    DELETE FROM source_text
    WHERE id = ANY(ARRAY(SELECT id FROM unused))
    RETURNING id
)
SELECT (SELECT CAST(id AS text) FROM next ORDER BY id DESC LIMIT 1) AS last, (SELECT count(*) FROM dropped) AS dropped
