-- Adds disturbances to the forecasts that have not ended: jobs that arrived, a pause.
UPDATE forecast
SET arrived = arrived + :arrived, disturbed = disturbed OR :paused
WHERE ended_at IS NULL
