-- Someone has signed in to the console. Sessions are over after half a day, and forgotten after two.
WITH old AS (DELETE FROM console_session WHERE began_at < now() - interval '2 days')
INSERT INTO console_session (id, name, role, tenant, key_id)
VALUES (:id, :name, :role, :tenant, :key_id)
