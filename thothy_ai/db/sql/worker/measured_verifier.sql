-- What was measured last of a verifier with these weights.
SELECT found, false_alarms, measured_at FROM measured_verifier WHERE name = :name AND weights = :weights
