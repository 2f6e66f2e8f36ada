-- The planned order: earliest virtual deadline first. It is indexed: another rule needs functions of other names.

-- A deadline, rounded down to a bucket whose width grows with the slack: a power of two of minutes, more than an eighth
-- and at most a quarter of the slack at enqueueing. Sibling jobs whose deadlines differ little share a bucket.
CREATE FUNCTION thothy_due(
    deadline timestamptz, enqueued_at timestamptz, scheduled_for timestamptz
) RETURNS timestamp
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN date_bin(
    interval '1 minute' * power(2, floor(
        ln(greatest(1, date_part('epoch', deadline - greatest(enqueued_at, scheduled_for)) / 240)) / ln(2)
    )),
    deadline AT TIME ZONE 'UTC', timestamp '1970-01-01'
);

COMMENT ON FUNCTION thothy_due IS 'The deadline, rounded down by up to a quarter of the slack; NULL without one.';

-- The deadline if it is within a day, otherwise a day after the ten minutes in which the job was enqueued, or for which
-- it was scheduled; less a day per point of priority.
CREATE FUNCTION thothy_virtual_deadline(
    priority smallint, deadline timestamptz, enqueued_at timestamptz, scheduled_for timestamptz
) RETURNS timestamp
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(
    thothy_due(deadline, enqueued_at, scheduled_for),
    date_bin(
        interval '10 minutes', greatest(enqueued_at, scheduled_for) AT TIME ZONE 'UTC', timestamp '1970-01-01'
    ) + interval '1 day'
) - priority * interval '1 day';

COMMENT ON FUNCTION thothy_virtual_deadline IS 'Jobs run in this order: deadline, age and priority in one.';
