-- Resumes a part of the queue.
DELETE FROM queue_pause WHERE scope = :scope AND name = :name
