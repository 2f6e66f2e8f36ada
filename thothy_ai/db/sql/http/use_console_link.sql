-- Uses a link up. One that has expired is nobody's.
DELETE FROM console_link
WHERE digest = :digest AND expires_at > now()
RETURNING name, role, tenant, personal
