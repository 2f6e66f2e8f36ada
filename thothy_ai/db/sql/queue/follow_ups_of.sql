-- The follow-ups of jobs that no other version has superseded. `of_this_version`: made after the last edit or send-back.
SELECT id, parent_id, request_digest AS digest, enqueued_at > coalesce((
        SELECT max(decided_at)
        FROM decision
        WHERE decision.job_id = child.parent_id AND action IN ('edit', 'send_back')
    ), '-infinity') AS of_this_version
FROM job AS child
WHERE parent_id = ANY(CAST(:ids AS uuid[])) AND reason IS DISTINCT FROM 'superseded'
ORDER BY id
