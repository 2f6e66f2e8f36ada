-- Held until the end of the transaction: of two engines that register one name at once, the second sees the first.
SELECT pg_advisory_xact_lock(hashtext('thothy_engine_' || :name))
