-- Ids that begin or end with a part of one. The beginning uses the primary key; the end reads its index from end to end.
SELECT id FROM job WHERE id BETWEEN :least AND :greatest
UNION
SELECT id FROM job WHERE right(id::text, length(:ref)) = :ref
LIMIT :limit
