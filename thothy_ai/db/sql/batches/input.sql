-- The content of a batch's input, NULL where it lies in the folder, however its tenant has deleted it since.
SELECT content FROM stored_file WHERE id = :id
