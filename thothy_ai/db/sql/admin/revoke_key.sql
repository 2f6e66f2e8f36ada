-- Revokes a key; the first time counts.
UPDATE api_key SET revoked_at = coalesce(revoked_at, now()) WHERE id = :id
