-- The next due jobs in planned order: at most `any_limit` of those that name no model, and of the `models` of each of
-- `teams`, which the same engines serve, as many as `limits` says. What waits for other models, or is paused, is left
-- out. Nothing while the queue is paused.
WITH next AS ({next_due})
SELECT id, model, priority, source_key
FROM next
WHERE NOT EXISTS (SELECT FROM queue_control WHERE name = 'default' AND paused)
ORDER BY {planned_order}
