-- Notes that someone looks at an artifact, with the texts that they have written, if any; returns those, and of which version.
INSERT INTO review_draft (job_id, viewer, name, version, texts)
VALUES (:job_id, :viewer, :name, :version, CAST(:texts AS jsonb))
ON CONFLICT (job_id, viewer) DO UPDATE SET
    seen_at = now(),
    name = excluded.name,
    version = CASE WHEN excluded.texts IS NULL AND review_draft.texts IS NOT NULL THEN review_draft.version ELSE excluded.version END,
    texts = coalesce(excluded.texts, review_draft.texts)
RETURNING version, texts
