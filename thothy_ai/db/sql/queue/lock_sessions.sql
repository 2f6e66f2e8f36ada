-- Locks what `queue/settle_sessions` settles, for the rest of the transaction: first the progress of the bill, then the
-- sessions by their ids, as everything does that changes attempts.
WITH progress AS (
    SELECT closed_until FROM usage_progress WHERE name = 'default' FOR SHARE
)
SELECT id
FROM engine_session
WHERE {unsettled} AND (SELECT closed_until FROM progress) IS NOT NULL
ORDER BY id
FOR NO KEY UPDATE
