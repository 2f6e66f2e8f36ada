-- Ends a batch and records its files, both or neither; nothing if it has ended already.
WITH ended AS (
    UPDATE api_batch
    SET status = :status, completed = :completed, failed = :failed, usage = CAST(:usage AS jsonb),
        completed_at = CASE :status WHEN 'completed' THEN now() END,
        expired_at = CASE :status WHEN 'expired' THEN now() END,
        cancelled_at = CASE :status WHEN 'cancelled' THEN now() END,
        output_file_id = CAST(:output AS uuid), error_file_id = CAST(:error AS uuid)
    WHERE id = :id AND status IN ('finalizing', 'cancelling')
    RETURNING tenant, output_seconds
)
INSERT INTO stored_file (id, tenant, purpose, name, size, expires_at, content)
SELECT file.id, tenant, 'batch_output', file.name, file.size,
    now() + make_interval(secs => output_seconds), file.content
FROM ended CROSS JOIN unnest(
    CAST(:ids AS uuid[]), CAST(:names AS text[]), CAST(:sizes AS bigint[]), CAST(:contents AS bytea[])
) AS file (id, name, size, content)
