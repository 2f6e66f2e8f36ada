-- Adds to the forecasts that have not ended what came between: jobs that arrived, a pause.
UPDATE forecast
SET arrived = arrived + :arrived, disturbed = disturbed OR :paused
WHERE ended_at IS NULL
