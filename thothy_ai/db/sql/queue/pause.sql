-- Pauses or resumes the queue. While it is paused nothing is dispatched; jobs that are dispatched or running finish.
-- What does not change the queue keeps the time of the last change; a second pause keeps the note, or replaces it.
INSERT INTO queue_control AS control (name, paused, changed_at, note)
VALUES ('default', :paused, now(), :note)
ON CONFLICT (name) DO UPDATE SET
    paused = excluded.paused,
    changed_at = CASE WHEN control.paused = excluded.paused THEN control.changed_at ELSE excluded.changed_at END,
    note = CASE
        WHEN control.paused AND excluded.paused THEN coalesce(excluded.note, control.note)
        ELSE excluded.note
    END
