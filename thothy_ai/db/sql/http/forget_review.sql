-- Someone has decided: what they had written is in the decision, or was dropped.
DELETE FROM review_draft WHERE job_id = :job_id AND viewer = :viewer
