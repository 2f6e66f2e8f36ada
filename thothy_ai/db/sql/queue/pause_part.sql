-- Pauses a part of the queue. A second pause keeps who paused it and when, and the note unless there is a new one.
INSERT INTO queue_pause AS pause (scope, name, paused_by, note)
VALUES (:scope, :name, :by, :note)
ON CONFLICT (scope, name) DO UPDATE SET note = coalesce(excluded.note, pause.note)
