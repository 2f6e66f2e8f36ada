-- Deletes deliveries that ended some time ago, and batches that ended longer ago than any delivery is kept.
WITH old AS (
    DELETE FROM webhook_delivery
    WHERE (created_at < now() - make_interval(days => :days) AND delivered_at IS NOT NULL)
        OR (created_at < now() - make_interval(days => :dead_days) AND dead_at IS NOT NULL)
)
DELETE FROM batch WHERE ended_at < now() - make_interval(days => :dead_days)
