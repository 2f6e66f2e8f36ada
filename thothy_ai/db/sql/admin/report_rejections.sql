-- Outputs that validators rejected in the window, by kind and reason. A job that is retried may be counted repeatedly.
SELECT kind, reason, count(*) AS outputs
FROM artifact
WHERE verdict = 'rejected' AND created_at >= :since AND created_at < :until
GROUP BY kind, reason
