-- Who is signed in to the console, the latest first: whose session was not ended, and whose key is valid.
SELECT s.id, s.name, s.role, s.tenant, s.key_id, s.began_at
FROM console_session AS s
LEFT JOIN api_key AS k ON k.id = s.key_id
WHERE s.ended_at IS NULL
    AND s.began_at > now() - make_interval(secs => :seconds)
    AND (CAST(:tenant AS text) IS NULL OR s.tenant = :tenant)
    AND k.revoked_at IS NULL
    AND coalesce(k.expires_at > now(), true)
ORDER BY s.began_at DESC, s.id
LIMIT :limit
