-- Removes files that have expired or were deleted, unless a batch still reads them.
DELETE FROM stored_file
WHERE least(expires_at, deleted_at) <= now()
    AND NOT EXISTS (SELECT FROM api_batch WHERE {open_batch} AND input_file_id = stored_file.id)
