-- The drains that overlap the window, the oldest first.
SELECT *
FROM drain
WHERE ended_at >= :since AND started_at < :until
ORDER BY started_at
