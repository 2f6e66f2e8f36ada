-- Queues lost dispatches again. If the message turns up nevertheless, its dispatch number fences it off.
WITH requeued AS (
    UPDATE job
    SET state = 'queued'
    FROM {hints} AS given (id, dispatch_no)
    WHERE job.id = given.id AND job.dispatch_no = given.dispatch_no AND state = 'dispatched'
        AND dispatched_at < now() - make_interval(secs => :timeout_seconds)
    RETURNING job.id, job.dispatch_no
), noted AS (
    INSERT INTO job_event (job_id, event, detail)
    SELECT id, 'republished', 'message ' || dispatch_no || ' was lost' FROM requeued
)
SELECT id, {wake_dispatcher} FROM requeued
