-- What was measured last of a verifier.
SELECT found, false_alarms FROM measured_verifier WHERE name = :name
