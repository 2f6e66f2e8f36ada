-- The database's clock, from which all timestamps come.
SELECT now()
