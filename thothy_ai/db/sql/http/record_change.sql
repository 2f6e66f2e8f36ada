-- What a person changed in the console.
INSERT INTO audit_log (id, name, tenant, action, target, before, after)
VALUES (:id, :name, :tenant, :action, :target, CAST(:before AS jsonb), CAST(:after AS jsonb))
