-- Outputs that validators refused in the window, by kind and reason. A job may be counted more than once: it is retried.
SELECT kind, reason, count(*) AS outputs
FROM artifact
WHERE verdict = 'rejected' AND created_at >= :since AND created_at < :until
GROUP BY kind, reason
