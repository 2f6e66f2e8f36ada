-- What a person is about to change in the console.
INSERT INTO audit_log (id, name, tenant, action, target)
VALUES (:id, :name, :tenant, :action, :target)
