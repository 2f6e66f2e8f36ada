-- Makes the history tables' partitions of the coming months.
SELECT thothy_ensure_partitions(:months_ahead)
