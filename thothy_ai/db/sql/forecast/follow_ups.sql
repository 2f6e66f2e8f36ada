-- Follow-up jobs of those that ended in the window, by their parents' kind and their own.
SELECT parent.kind AS parent, child.kind AS kind, count(*) AS jobs
FROM job AS parent JOIN job AS child ON child.parent_id = parent.id
WHERE parent.finished_at > :since AND parent.finished_at <= :until
GROUP BY 1, 2
