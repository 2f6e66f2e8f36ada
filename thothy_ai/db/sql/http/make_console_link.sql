-- A link to the console, which works once; those that were never used are deleted a day after.
WITH old AS (DELETE FROM console_link WHERE expires_at < now() - interval '1 day')
INSERT INTO console_link (digest, name, personal, role, tenant, expires_at)
VALUES (:digest, :name, :personal, :role, :tenant, now() + make_interval(secs => :seconds))
