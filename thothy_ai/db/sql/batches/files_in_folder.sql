-- Files that lie in the folder.
SELECT id FROM stored_file WHERE content IS NULL
