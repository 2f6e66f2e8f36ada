-- Ends the forecasts whose jobs have all ended: those made before the oldest open job was enqueued (`oldest`; NULL:
-- none is open). The end is that of the last job which had been enqueued before the forecast: it ended after the last
-- call, at `since`.
UPDATE forecast
SET ended_at = coalesce(
    (
        SELECT finished_at
        FROM job
        WHERE finished_at > greatest(to_timestamp(:since), made_at) AND enqueued_at <= made_at
        ORDER BY finished_at DESC
        LIMIT 1
    ),
    now()
)
WHERE ended_at IS NULL AND made_at < coalesce(to_timestamp(:oldest), 'infinity')
