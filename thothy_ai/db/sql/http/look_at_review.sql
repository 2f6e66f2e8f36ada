-- Notes that someone looks at an artifact, with the texts that they have written, if any; returns all that this session
-- has written, and of which version.
INSERT INTO review_draft (job_id, session, viewer, name, version, texts)
VALUES (:job_id, :session, :viewer, :name, :version, CAST(:texts AS jsonb))
ON CONFLICT (job_id, session) DO UPDATE SET
    seen_at = now(),
    version = CASE
        WHEN excluded.texts IS NULL AND review_draft.texts IS NOT NULL THEN review_draft.version
        ELSE excluded.version
    END,
    texts = CASE
        WHEN excluded.texts IS NULL THEN review_draft.texts
        WHEN review_draft.version = excluded.version THEN coalesce(review_draft.texts, '{}') || excluded.texts
        ELSE excluded.texts
    END
RETURNING version, texts
