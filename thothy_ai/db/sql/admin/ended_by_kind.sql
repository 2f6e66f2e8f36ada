-- Jobs that ended in the last day, by kind: in all and as failures, in windows that alarms look at. Cancelled ones are
-- apart.
SELECT kind,
    count(*) FILTER (WHERE state = 'expired' AND finished_at > now() - interval '15 minutes') AS expired_15m,
    count(*) FILTER (WHERE finished_at > now() - interval '5 minutes') AS ended_5m,
    count(*) FILTER (WHERE state <> 'succeeded' AND finished_at > now() - interval '5 minutes') AS failed_5m,
    count(*) FILTER (WHERE finished_at > now() - interval '1 hour') AS ended_1h,
    count(*) FILTER (WHERE state <> 'succeeded' AND finished_at > now() - interval '1 hour') AS failed_1h,
    count(*) FILTER (WHERE state <> 'expired') AS ended_1d,
    count(*) FILTER (WHERE state = 'dead') AS dead_1d
FROM job
WHERE finished_at > now() - interval '1 day' AND state <> 'cancelled'
GROUP BY kind
