-- Whether this transaction may decide which quarantined jobs run next on this engine. The name of the lock is part of
-- the protocol between workers of different versions.
SELECT pg_try_advisory_xact_lock(
    hashtext(current_schema() || '_suspect'), hashtext(coalesce(CAST(:engine_session_id AS uuid)::text, ''))
) AS acquired
