-- Whether this transaction may decide which suspect runs next. A client that stops amid it must not keep the turn.
SELECT set_config('idle_in_transaction_session_timeout', '10s', TRUE), pg_try_advisory_xact_lock(hashtext('thothy_suspect'))
    AS mine
