-- Corrects the residency of closed hours from `since` to `until` where it was not known: while Postgres was away, no
-- engine could report, and its next heartbeat says that it was resident all along.
WITH resident AS (
    {residency}
)
INSERT INTO usage_by_hour AS known (
    hour, tenant, kind, model_name, adapter, resident_seconds, closed_seconds, revised_at
)
SELECT hour, tenant, kind, model_name, adapter, resident_seconds, 0, now() FROM resident
WHERE hour >= (SELECT min(hour) FROM usage_by_hour)
ON CONFLICT (hour, tenant, kind, model_name, adapter) DO UPDATE
SET resident_seconds = excluded.resident_seconds, revised_at = now()
WHERE abs(known.resident_seconds - excluded.resident_seconds) > 0.5
