"""What must hold once a chaos run is over. Each query lists violations: a job id or other name, and a description.

`WATCH` is added to the schema before the run: a trigger notes every change to a job that had already ended.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Engine, text

MAX_SHOWN = 50  # of each invariant's violations

WATCH = """
CREATE TABLE chaos_reopened (job_id uuid, change text);
CREATE FUNCTION chaos_note_reopened() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_reopened VALUES (old.id, old.state || ' became ' || new.state);
    RETURN NULL;
END $$;
CREATE TRIGGER chaos_reopened AFTER UPDATE ON job FOR EACH ROW
WHEN (old.finished_at IS NOT NULL
    AND (new.state, new.finished_at, new.attempt) IS DISTINCT FROM (old.state, old.finished_at, old.attempt))
EXECUTE FUNCTION chaos_note_reopened();
"""

OVERBILLED = "no engine session is billed for more than it was busy"
INVARIANTS: dict[str, str] = {
    "every job that was sent is in the table": """
        SELECT key, 'was sent and is not in the table'
        FROM (SELECT 'chaos-' || n AS key FROM generate_series(1, :jobs) AS n) AS sent
        WHERE NOT EXISTS (SELECT FROM job WHERE tenant = 'chaos' AND idempotency_key = key)""",
    "every job has ended": """
        SELECT id, 'is ' || state FROM job WHERE finished_at IS NULL""",
    "a job that has ended does not change": """
        SELECT job_id, change FROM chaos_reopened""",
    "a succeeded job has exactly one artifact, no other has one": """
        SELECT job.id, state || ' with ' || count(artifact.job_id) || ' accepted artifacts'
        FROM job LEFT JOIN artifact ON artifact.job_id = job.id AND verdict = 'accepted'
        GROUP BY job.id
        HAVING count(artifact.job_id) <> CASE WHEN state = 'succeeded' THEN 1 ELSE 0 END""",
    "a succeeded job has exactly one succeeded attempt, its last": """
        SELECT job.id, state || ' at attempt ' || job.attempt || ', succeeded ones: ' ||
            coalesce(string_agg(tried.attempt::text, ', '), 'none')
        FROM job LEFT JOIN attempt AS tried ON tried.job_id = job.id AND outcome = 'succeeded'
        GROUP BY job.id
        HAVING count(tried.attempt) <> CASE WHEN state = 'succeeded' THEN 1 ELSE 0 END
            OR max(tried.attempt) <> job.attempt""",
    "attempts stay within the limit": """
        SELECT job.id, failures || ' failures, ' || count(tried.attempt) || ' recorded, limit ' || max_attempts
        FROM job LEFT JOIN attempt AS tried ON tried.job_id = job.id
            AND (outcome IN ('failed', 'rejected') OR outcome = 'lost' AND tried.reason = 'lease_lost')
        GROUP BY job.id
        HAVING failures > max_attempts OR count(tried.attempt) > failures""",
    "every attempt that was claimed is recorded once, under its number": """
        SELECT job.id, count(tried.attempt) || ' attempts of ' || job.attempt || ', up to ' || max(tried.attempt)
        FROM job LEFT JOIN attempt AS tried ON tried.job_id = job.id
        GROUP BY job.id
        HAVING max(tried.attempt) > job.attempt OR count(tried.attempt) <> job.attempt""",
    "a job ends as its request asks for, or says why not": """
        SELECT id, state || ' (' || coalesce(reason, 'no reason') || '), asked for: ' || (request ->> 'verdict')
        FROM job JOIN job_request ON job_id = id
        WHERE NOT CASE state
            WHEN 'succeeded' THEN request ->> 'verdict' = 'accepted'
            WHEN 'cancelled' THEN cancel_requested
            WHEN 'expired' THEN deadline <= finished_at
            WHEN 'dead' THEN request ->> 'verdict' = 'rejected'
                OR reason = 'lease_lost' AND failures >= max_attempts OR reason = 'engine_killer'
            END""",
    "each follow-up that an artifact asks for is sent once": """
        SELECT parent.id, parent.state || ' with ' || count(child.id) || ' follow-ups'
        FROM job AS parent JOIN job_request ON job_id = parent.id LEFT JOIN job AS child ON child.parent_id = parent.id
        GROUP BY parent.id, request
        HAVING count(child.id) <> CASE WHEN parent.state = 'succeeded' THEN (request ->> 'more')::int ELSE 0 END""",
    # Also checked before sessions are settled, because settling takes billed usage as proof of busy time. That is right
    # for a killed engine: it may have delivered results after its counters were last read, which was at its last
    # heartbeat (up to 9 s before if its registrar is gone as well, which had 4 s to ask and 5 s to record). It is wrong
    # for a session whose counters were read well after its last result.
    OVERBILLED: """
        SELECT session.id, 'busy for ' || busy_seconds || ' s, billed for ' || sum(compute_seconds) || ' s'
        FROM engine_session AS session JOIN attempt ON engine_session_id = session.id
        GROUP BY session.id
        HAVING sum(compute_seconds) FILTER (
            WHERE finished_at < heartbeat_at - interval '1 s' * CASE end_reason WHEN 'silent' THEN 10 ELSE 1 END)
            > busy_seconds * 1.000001""",
    # Checked row by row once sessions are settled. A killed engine was busy for the time in its last heartbeat.
    "what an engine was busy for is billed, attempt by attempt": """
        SELECT session.id, 'busy for ' || busy_seconds || ' s, billed for ' || coalesce(sum(compute_seconds), 0) || ' s'
        FROM engine_session AS session LEFT JOIN attempt ON engine_session_id = session.id
        GROUP BY session.id
        HAVING abs(busy_seconds - coalesce(sum(compute_seconds), 0)) > 0.000001 * busy_seconds""",
    # Unbilled usage is divided among lost attempts. More than one answer's worth per attempt would hide an error.
    "no attempt is billed for more than an answer costs": """
        SELECT job_id, 'attempt ' || attempt || ', ' || outcome || ', is billed for ' || compute_seconds || ' s'
        FROM attempt
        WHERE :answer_seconds > 0 AND compute_seconds > :answer_seconds * 1.000001""",
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A violated invariant: for which job or session, and how."""

    invariant: str
    subject: str
    description: str


def violations(
    engine: Engine, jobs: int, answer_seconds: float, invariants: Collection[str] = INVARIANTS
) -> list[Violation]:
    """Violations, at most `MAX_SHOWN` per invariant. `answer_seconds`: the cost of an answer; 0 if it varies."""
    found = []
    given = {"jobs": jobs, "answer_seconds": answer_seconds}
    with engine.connect() as connection:
        for invariant in invariants:
            query = INVARIANTS[invariant]
            wanted = {name: value for name, value in given.items() if f":{name}" in query}
            rows = connection.execute(text(query), wanted).fetchmany(MAX_SHOWN)
            found += [Violation(invariant, str(subject), str(description)) for subject, description in rows]
    return found
