-- What a change was made to, and what came of it.
UPDATE audit_log SET before = CAST(:before AS jsonb), after = CAST(:after AS jsonb) WHERE id = :id
