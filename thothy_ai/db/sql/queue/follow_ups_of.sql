-- The follow-ups of jobs that no other version has superseded. `of_this_version`: made after the last edit or
-- send-back, and not with what was superseded. Of earlier versions, those that ended without an artifact are left out:
-- the next version tries again.
SELECT id, parent_id, digest, of_this_version
FROM (
    SELECT id, parent_id, state, request_digest AS digest, enqueued_at > greatest((
            SELECT max(decided_at)
            FROM decision
            WHERE decision.job_id = child.parent_id AND action IN ('edit', 'send_back')
        ), (
            SELECT max(enqueued_at) FROM job AS other WHERE other.parent_id = child.parent_id AND reason = 'superseded'
        ), '-infinity') AS of_this_version
    FROM job AS child
    WHERE parent_id = ANY(CAST(:ids AS uuid[])) AND reason IS DISTINCT FROM 'superseded'
) AS made
WHERE of_this_version OR state NOT IN ('dead', 'cancelled', 'expired')
ORDER BY id
