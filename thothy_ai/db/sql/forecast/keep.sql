-- Keeps what was learnt and the latest forecast. JSON parameters.
INSERT INTO forecast_state (name, learnt, latest, changed_at)
VALUES ('default', CAST(:learnt AS jsonb), CAST(:latest AS jsonb), now())
ON CONFLICT (name) DO UPDATE SET learnt = excluded.learnt, latest = excluded.latest, changed_at = excluded.changed_at
