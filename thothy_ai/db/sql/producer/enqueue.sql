-- Inserts jobs with their requests, all or none, and wakes the dispatcher. `jobs` is a JSON array of rows of
-- `drafts.insertion`. Returns the ids that were not inserted because their idempotency key is taken. For requests
-- without long texts; `producer/enqueue_texts` is for all others.
WITH {inserted_jobs},
bodies AS (
    INSERT INTO job_request (job_id, request)
    SELECT id, CAST(request AS jsonb) FROM given JOIN inserted USING (id)
)
SELECT {taken_jobs} AS taken, {wake_dispatcher}
