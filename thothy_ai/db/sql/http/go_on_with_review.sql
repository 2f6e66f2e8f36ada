-- Gives a session what its viewer wrote last in one that nobody looks with any more, unless it has texts of its own. A
-- hidden tab reports once a minute.
WITH left_behind AS (
    DELETE FROM review_draft
    WHERE job_id = :job_id AND session = (
        SELECT session
        FROM review_draft
        WHERE job_id = :job_id AND viewer = :viewer AND texts IS NOT NULL AND seen_at < now() - interval '2 minutes'
            AND NOT EXISTS (
                SELECT FROM review_draft WHERE job_id = :job_id AND session = :session AND texts IS NOT NULL
            )
        ORDER BY seen_at DESC
        LIMIT 1
    )
    RETURNING name, version, texts
)
INSERT INTO review_draft (job_id, session, viewer, name, version, texts)
SELECT :job_id, :session, :viewer, name, version, texts
FROM left_behind
ON CONFLICT (job_id, session) DO UPDATE SET version = excluded.version, texts = excluded.texts
