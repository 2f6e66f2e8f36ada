-- Ids that begin or end with these digits. The beginning uses the primary key; the end reads its index from end to end.
SELECT id FROM job WHERE id BETWEEN :least AND :greatest
UNION
SELECT id FROM job WHERE right(replace(id::text, '-', ''), length(:digits)) = :digits
LIMIT :limit
