-- Pauses or resumes the queue. While it is paused nothing is dispatched; jobs that are dispatched or running finish.
INSERT INTO queue_control (name, paused, changed_at, note)
VALUES ('default', :paused, now(), :note)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused, changed_at = excluded.changed_at, note = excluded.note
