-- The usage of the closed hours from `since` to `until`; and until `end` that of purged jobs, whose hours are still
-- open.
SELECT hour, tenant, kind, model_name, adapter, {usage_sums}, closed_seconds, revised_at
FROM usage_by_hour
WHERE hour >= :since AND (hour < :until OR (closed_seconds IS NULL AND hour < :end))
ORDER BY hour, tenant, kind, model_name, adapter
