-- The operator's word. Jobs that are dispatched or running finish; nothing new is dispatched.
INSERT INTO queue_control (name, paused, changed_at, note)
VALUES ('default', :paused, now(), :note)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, changed_at = excluded.changed_at, note = excluded.note
