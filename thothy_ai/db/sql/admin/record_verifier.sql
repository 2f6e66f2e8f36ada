-- What was measured of a verifier, in the place of what was measured before.
INSERT INTO measured_verifier (name, found, false_alarms)
VALUES (:name, :found, :false_alarms)
ON CONFLICT (name) DO UPDATE
SET found = excluded.found, false_alarms = excluded.false_alarms, measured_at = now()
