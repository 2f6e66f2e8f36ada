-- Records the drains in the jobs that finished after `since`. A drain begins when a job is due while none is open, and
-- ends with the last finish before a gap of more than `gap_seconds`: shorter ones belong to it. The last of them ended
-- with an empty queue if `emptied`, and otherwise goes on. If nothing could run at `since` (`was_empty`), a job that
-- was due by then and names a model waited for it if no engine served it then, or had been heard of within
-- `absence_seconds`: it begins when it is first tried after that; one that never was is in no drain. Every other job
-- was in a transaction that had not been committed: `enqueued_at` is when that began.
WITH served AS (
    SELECT DISTINCT unnest({model_names}) AS model_name
    FROM engine_session
    WHERE coalesce(ready_at, started_at) <= CAST(:since AS timestamptz)
        AND heartbeat_at > CAST(:since AS timestamptz) - make_interval(secs => :absence_seconds)
), askable AS (
    SELECT alias AS model FROM model_alias JOIN served USING (model_name)
    UNION
    SELECT model_name FROM served WHERE NOT EXISTS (SELECT FROM model_alias WHERE alias = model_name)
), first AS (
    SELECT job_id, attempt AS number, started_at AS first_start
    FROM attempt
    WHERE finished_at > CAST(:since AS timestamptz) - interval '1 day'
), again AS (
    SELECT job_id, min(started_at) AS resumed
    FROM attempt
    WHERE :was_empty AND finished_at > :since AND started_at > :since
    GROUP BY job_id
), ended AS (
    SELECT id, state, model, finished_at, first_start,
        least(finished_at, CASE
            -- A retry replaces not_before: where it is later than the first start, the job was due when it was
            -- enqueued.
            WHEN not_before <= coalesce(first_start, finished_at) THEN greatest(enqueued_at, not_before)
            WHEN budget_after > 0 THEN first_start -- redriven: enqueued long ago
            ELSE greatest(enqueued_at, scheduled_for)
        END) AS due
    FROM job LEFT JOIN first ON job_id = id AND number = budget_after + 1
    WHERE finished_at > :since AND NOT (first_start IS NULL AND not_before > finished_at) -- was never due
), runnable AS (
    SELECT id, state, finished_at, first_start, due, CASE
        WHEN due > :since THEN due
        WHEN :was_empty AND model IS NOT NULL AND model NOT IN (SELECT model FROM askable)
            AND (resumed IS NOT NULL OR state IN ('cancelled', 'expired'))
        THEN resumed
        ELSE CAST(:since AS timestamptz) + interval '1 microsecond'
    END AS since
    FROM ended LEFT JOIN again ON job_id = id
), gaps AS (
    SELECT *, since > max(finished_at) OVER (ORDER BY since, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        + make_interval(secs => :gap_seconds) AS opens
    FROM runnable
    WHERE since IS NOT NULL
), numbered AS (
    SELECT *, count(*) FILTER (WHERE opens) OVER (ORDER BY since, id) AS drain_no FROM gaps
), bounds AS (
    SELECT drain_no, min(since) AS started_at,
        greatest(CAST(extract(epoch FROM max(finished_at) - min(since)) AS float8), 0.001) / 100000 AS bin_seconds
    FROM numbered
    GROUP BY drain_no
), changes AS ( -- of the depth, in bins of a hundred-thousandth of the drain
    SELECT drain_no, floor(CAST(extract(epoch FROM at - started_at) AS float8) / bin_seconds) AS bin,
        count(*) FILTER (WHERE begins) AS begun, count(*) FILTER (WHERE NOT begins) AS over
    FROM numbered JOIN bounds USING (drain_no),
        LATERAL (VALUES (since, true), (finished_at, false)) AS event (at, begins)
    GROUP BY 1, 2
), depths AS (
    SELECT drain_no, sum(begun - over) OVER (PARTITION BY drain_no ORDER BY bin) + over AS depth FROM changes
), peaks AS (
    SELECT drain_no, max(depth) AS peak_depth FROM depths GROUP BY drain_no
), spans AS (
    SELECT drain_no, min(since) AS started_at, max(finished_at) AS ended_at,
        count(*) FILTER (WHERE state = 'succeeded') AS succeeded, count(*) FILTER (WHERE state = 'dead') AS dead,
        count(*) FILTER (WHERE state = 'cancelled') AS cancelled, count(*) FILTER (WHERE state = 'expired') AS expired,
        percentile_cont(CAST(ARRAY[0.5, 0.95, 0.99] AS float8[])) WITHIN GROUP (
            ORDER BY greatest(0, extract(epoch FROM first_start - due))
        ) FILTER (WHERE first_start IS NOT NULL) AS waits
    FROM numbered
    GROUP BY drain_no
)
INSERT INTO drain (
    started_at, ended_at, emptied, succeeded, dead, cancelled, expired, attempts, with_output, with_artifact, clean,
    peak_depth,
    wait_p50, wait_p95, wait_p99, run_p50, run_p95, run_p99, resident_seconds, busy_seconds, useful_seconds,
    draft_seconds
)
SELECT started_at, ended_at, :emptied OR drain_no < max(drain_no) OVER (), succeeded, dead, cancelled, expired,
    tried.attempts, succeeded + tried.only_rejected, made.accepted, made.clean, peak_depth,
    waits[1], waits[2], waits[3], runs[1], runs[2], runs[3],
    coalesce(resident.seconds, 0), coalesce(tried.busy_seconds, 0), coalesce(tried.useful_seconds, 0),
    coalesce(tried.draft_seconds, 0)
FROM spans JOIN peaks USING (drain_no), LATERAL (
    SELECT count(*) AS attempts, sum(attempt.compute_seconds * {devices}) AS busy_seconds,
        sum(attempt.compute_seconds * {devices}) FILTER (WHERE outcome = 'succeeded') AS useful_seconds,
        sum(attempt.compute_seconds * {devices}) FILTER (WHERE outcome = 'rejected' AND (
            SELECT true FROM job WHERE job.id = attempt.job_id AND {kept_draft} -- by row: a join reads all jobs
        )) AS draft_seconds,
        count(DISTINCT job_id) FILTER (WHERE outcome = 'rejected' AND EXISTS (
            SELECT FROM job WHERE job.id = job_id AND state <> 'succeeded'
        )) AS only_rejected,
        percentile_cont(CAST(ARRAY[0.5, 0.95, 0.99] AS float8[])) WITHIN GROUP (
            ORDER BY greatest(0, extract(epoch FROM finished_at - attempt.started_at))
        ) AS runs
    FROM attempt LEFT JOIN engine_session AS session ON session.id = engine_session_id
    WHERE finished_at >= spans.started_at AND finished_at <= spans.ended_at
) AS tried, LATERAL ( -- an artifact is written when its job ends
    SELECT count(*) AS accepted, count(*) FILTER (WHERE findings = '[]') AS clean
    FROM artifact
    WHERE created_at >= spans.started_at AND created_at <= spans.ended_at AND verdict = 'accepted'
) AS made, LATERAL (
    SELECT sum(extract(epoch FROM until_at - since_at) * devices) AS seconds
    FROM (
        SELECT {devices} AS devices, greatest(session.started_at, spans.started_at) AS since_at,
            least({resident_until}, spans.ended_at) AS until_at
        FROM engine_session AS session
    ) AS clipped
    WHERE until_at > since_at
) AS resident
ON CONFLICT (started_at) DO NOTHING
RETURNING started_at, ended_at, emptied, succeeded, dead, cancelled, expired
