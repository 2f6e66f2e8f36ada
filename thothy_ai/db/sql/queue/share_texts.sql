-- Lets requests refer to texts, once no worker from before the upgrade is left: it could not read them, and none can be
-- started again. A connection that is older than the upgrade is such a worker's. Where Postgres has been restarted since,
-- no connection is that old: then any worker may be one. Other roles' connections do not show their age.
UPDATE queue_control
SET shares_texts = true
WHERE name = 'default' AND NOT shares_texts AND NOT EXISTS (
    SELECT FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = current_schema() || '-worker'
        AND (coalesce(backend_start, '-infinity') < upgraded_at OR pg_postmaster_start_time() > upgraded_at)
)
RETURNING name
