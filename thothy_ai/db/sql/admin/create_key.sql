-- Stores a new key of the HTTP API, unless it would have expired already.
INSERT INTO api_key (
    id, hash, tenant, name, scopes,
    requests_per_minute, tokens_per_minute, concurrent_requests, interactive_seconds_per_day, expires_at
)
SELECT :id, :hash, :tenant, :name, CAST(:scopes AS text[]),
    :requests_per_minute, :tokens_per_minute, :concurrent_requests, :interactive_seconds_per_day, :expires_at
WHERE coalesce(CAST(:expires_at AS timestamptz), 'infinity') > now()
