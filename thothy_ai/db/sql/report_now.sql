-- The database's clock, which all stamps come from.
SELECT now()
