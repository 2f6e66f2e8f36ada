-- The states and priorities of these jobs. The ids are one array: a statement has at most 65,535 parameters.
SELECT id, state, priority
FROM job
WHERE id = ANY(CAST(:ids AS uuid[]))
