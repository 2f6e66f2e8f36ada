-- What came of the jobs that ended in the window, as people have decided until now, and the seconds of drafts that are
-- kept. Of jobs that were deleted, hours have it (`usage_closed`).
{yields_of_window}
