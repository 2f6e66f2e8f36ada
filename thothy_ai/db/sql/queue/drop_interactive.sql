-- Deletes what requests over HTTP used in each minute before `before`; the bill of closed hours has its sums.
DELETE FROM interactive_usage
WHERE id = ANY(ARRAY(
    SELECT id
    FROM interactive_usage
    WHERE minute < least(CAST(:before AS timestamptz), (SELECT closed_until FROM usage_progress WHERE name = 'default'))
    ORDER BY minute
    LIMIT :limit
))
RETURNING id
