-- What is paused apart from the whole queue.
SELECT scope, name, paused_at, paused_by, note
FROM queue_pause
ORDER BY scope, name
