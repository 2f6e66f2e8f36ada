-- Someone has decided with these of their texts, and looks no longer; what else they have written is kept.
UPDATE review_draft
SET seen_at = '-infinity', texts = nullif(texts - CAST(:used AS text[]), '{}')
WHERE job_id = :job_id AND session = :session
