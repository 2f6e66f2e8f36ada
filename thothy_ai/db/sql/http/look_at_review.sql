-- Notes that someone looks at an artifact, with the text that they have written, if any; returns that text.
INSERT INTO review_draft (job_id, name, version, body)
VALUES (:job_id, :name, :version, CAST(:body AS jsonb))
ON CONFLICT (job_id, name) DO UPDATE SET
    seen_at = now(),
    version = excluded.version,
    -- A text about another version is kept: it is shown, and its writer decides what to do with it.
    body = coalesce(excluded.body, review_draft.body)
RETURNING body
