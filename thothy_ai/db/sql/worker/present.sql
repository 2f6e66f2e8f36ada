-- A worker that reaches its engine is seen to be there: by its connection (`admin/processes`).
SELECT 1
