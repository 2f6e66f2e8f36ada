-- Sessions of the console that were ended before their time.
SELECT id FROM console_session WHERE ended_at IS NOT NULL
