-- All keys of the HTTP API. A door reads them every few seconds: what was revoked, and that there are keys at all, must
-- be known, too.
SELECT id, hash, tenant, name, scopes,
    requests_per_minute, tokens_per_minute, concurrent_requests, interactive_seconds_per_day,
    created_at, expires_at, revoked_at, CAST(extract(epoch FROM expires_at - now()) AS float8) AS ends_in
FROM api_key
ORDER BY created_at, id
