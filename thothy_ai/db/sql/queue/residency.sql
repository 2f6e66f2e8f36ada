-- Device-seconds for which engines were resident in the last seven days.
SELECT coalesce(
    sum(extract(epoch FROM {resident_until} - greatest(started_at, now() - interval '7 days')) * {devices}), 0
)::float8 AS seconds
FROM engine_session AS session
WHERE {resident_until} > now() - interval '7 days'
