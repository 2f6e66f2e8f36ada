-- Whether the queue is paused, since when and why.
SELECT paused, changed_at, note
FROM queue_control
WHERE name = 'default'
