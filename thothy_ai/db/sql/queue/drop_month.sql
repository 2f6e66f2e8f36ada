-- Drops a month's partitions, if none of its jobs is left.
SELECT thothy_drop_month(:month, :lock_wait) AS dropped
