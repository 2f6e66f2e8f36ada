-- Records a forecast, to be compared with what comes.
INSERT INTO forecast (made_at, began_at, open_jobs, p50_seconds, p90_seconds, late_jobs)
VALUES (to_timestamp(:made_at), to_timestamp(:began_at), :open_jobs, :p50, :p90, :late)
ON CONFLICT DO NOTHING
