-- The secret that signs the console's sessions, which the first server makes.
INSERT INTO console_secret (secret) VALUES (:secret)
ON CONFLICT (one) DO UPDATE SET secret = console_secret.secret
RETURNING secret
