-- Waits for dispatches that have begun, and has those that come meanwhile start over: see `dispatch_stops`.
UPDATE queue_control SET name = name WHERE name = 'default'
