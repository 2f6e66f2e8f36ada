-- Sums finished jobs, judged outputs, attempts and usage per hour, tenant and kind, again from the last hour that was
-- summed before. The first sum goes back a week. A figure only grows: a job that is purged or queued again did end in its hour.
WITH bounds AS (
    SELECT least(
        date_trunc('hour', now()) - make_interval(hours => :hours),
        coalesce((SELECT max(hour) FROM usage_hourly), date_trunc('hour', now()) - interval '7 days')
    ) AS since
), done AS (
    SELECT date_trunc('hour', finished_at) AS hour, tenant, kind,
        count(*) FILTER (WHERE state = 'succeeded') AS succeeded, count(*) FILTER (WHERE state = 'dead') AS dead,
        count(*) FILTER (WHERE state = 'cancelled') AS cancelled, count(*) FILTER (WHERE state = 'expired') AS expired
    FROM job, bounds
    WHERE finished_at >= since
    GROUP BY 1, 2, 3
), judged AS (
    SELECT date_trunc('hour', created_at) AS hour, tenant, kind,
        count(*) FILTER (WHERE verdict = 'accepted') AS accepted, count(*) FILTER (WHERE verdict = 'rejected') AS rejected
    FROM artifact, bounds
    WHERE created_at >= since
    GROUP BY 1, 2, 3
), tried AS (
    SELECT date_trunc('hour', finished_at) AS hour, tenant, kind,
        count(*) AS attempts, count(*) FILTER (WHERE outcome = 'lost') AS lost,
        sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens, sum(output_tokens) AS output_tokens,
        sum(compute_seconds) AS compute_seconds
    FROM attempt, bounds
    WHERE finished_at >= since
    GROUP BY 1, 2, 3
)
INSERT INTO usage_hourly (
    hour, tenant, kind, succeeded, dead, cancelled, expired, accepted, rejected, attempts, lost,
    prompt_tokens, cached_tokens, output_tokens, compute_seconds
)
SELECT hour, tenant, kind, coalesce(succeeded, 0), coalesce(dead, 0), coalesce(cancelled, 0), coalesce(expired, 0),
    coalesce(accepted, 0), coalesce(rejected, 0), coalesce(attempts, 0), coalesce(lost, 0),
    coalesce(prompt_tokens, 0), coalesce(cached_tokens, 0), coalesce(output_tokens, 0), coalesce(compute_seconds, 0)
FROM done FULL JOIN judged USING (hour, tenant, kind) FULL JOIN tried USING (hour, tenant, kind)
ON CONFLICT (hour, tenant, kind) DO UPDATE SET
    succeeded = greatest(usage_hourly.succeeded, excluded.succeeded),
    dead = greatest(usage_hourly.dead, excluded.dead),
    cancelled = greatest(usage_hourly.cancelled, excluded.cancelled),
    expired = greatest(usage_hourly.expired, excluded.expired),
    accepted = greatest(usage_hourly.accepted, excluded.accepted),
    rejected = greatest(usage_hourly.rejected, excluded.rejected),
    attempts = greatest(usage_hourly.attempts, excluded.attempts),
    lost = greatest(usage_hourly.lost, excluded.lost),
    prompt_tokens = greatest(usage_hourly.prompt_tokens, excluded.prompt_tokens),
    cached_tokens = greatest(usage_hourly.cached_tokens, excluded.cached_tokens),
    output_tokens = greatest(usage_hourly.output_tokens, excluded.output_tokens),
    compute_seconds = greatest(usage_hourly.compute_seconds, excluded.compute_seconds)
