-- What was measured of a verifier with these weights, in the place of what was measured of them before.
INSERT INTO measured_verifier (name, weights, found, false_alarms)
VALUES (:name, :weights, :found, :false_alarms)
ON CONFLICT (name, weights) DO UPDATE
SET found = excluded.found, false_alarms = excluded.false_alarms, measured_at = now()
