"""Fragments shared by several statements: orders, predicates, intervals and limits.

A statement names a fragment in braces: `ORDER BY {planned_order}`. `statements.py` replaces it by its text when it
reads the file. Fragments do not qualify column names: a statement that uses one must keep those names unambiguous.
"""

from __future__ import annotations

from typing import Final

from thothy_ai.db.usage_fragments import usage_fragments

# The order in which jobs are dispatched and claimed: earliest virtual deadline first. It is a job's deadline, or a day
# after it was enqueued if it has none within that day, less a day per point of priority. Thus priority decides between
# jobs of similar age, then the deadline, and none starves: only jobs enqueued at most a day later overtake a job, plus
# a day per point of priority that they have more. Both times are rounded, deadlines by up to a quarter of their slack,
# and within equal times sources go one after the other: siblings stay together. The functions are in
# migrations/versions/r0001_planned_order.sql; the index `ix_job_queued` is over the same terms.
PLANNED_ORDER: Final = (
    "thothy_virtual_deadline(priority, deadline, enqueued_at, scheduled_for)",
    "thothy_due(deadline, enqueued_at, scheduled_for)",
    "source_key",
    "id",
)
WAITING: Final = "state IN ('queued', 'dispatched')"
NOT_EXPIRED: Final = "(deadline IS NULL OR deadline > now())"

UNDELIVERED: Final = "delivered_at IS NULL AND dead_at IS NULL"
UNDECIDED: Final = "review IN ('needs_review', 'needs_edit', 'held')"  # of a job that waits for a person
# An attempt at the job left a draft that a person may edit.
DRAFTED: Final = "EXISTS (SELECT FROM artifact WHERE artifact.job_id = job.id AND artifact.draft)"
DECIDED: Final = "review IN ('approved', 'rejected')"  # of a job that a person has decided on
OPEN_BATCH: Final = "status IN ('validating', 'in_progress', 'finalizing', 'cancelling')"

QUEUED: Final = "queued"  # the channel, after the schema's name, whose NOTIFY wakes the dispatcher
FINISHED: Final = "finished"  # the channel whose notifications list the ids of jobs that have ended
WEBHOOKS: Final = "webhooks"  # the channel that says that webhooks may be due
BATCHES: Final = "batches"  # the channel that says that there is something to do for batches of OpenAI's API
IDS_PER_NOTIFICATION: Final = 200  # of 37 bytes each: a payload has less than 8,000
DEATHS_TO_RUN_ALONE: Final = 3  # engine deaths charged to a job, from which on nothing else runs on its engine
DEATHS_FOR_SMALL_GROUPS: Final = 2  # from which on few other charged jobs run with it
FREE_MACHINE_LOSSES: Final = 3  # of a job, before a further one counts as an engine death
ENGINE_SILENCE_SECONDS: Final = 10  # an engine session without a heartbeat for longer has ended
ENGINE_SILENCE: Final = f"interval '{ENGINE_SILENCE_SECONDS} seconds'"
# Of an engine session, which may have ended since: an engine that starts again within that time is the same engine.
HEARD_OF: Final = f"heartbeat_at > now() - {ENGINE_SILENCE}"

DELAY_MARGIN: Final = (
    "interval '1 minute'"  # a job for later is kept out of the dispatcher's index until then, less this
)
# When a job may start: the requested `not_before`; NULL if none was requested.
START: Final = f"""coalesce(not_before, now()) AS not_before,
           CASE WHEN not_before > now() THEN not_before END AS scheduled_for,
           coalesce(not_before > now() + {DELAY_MARGIN}, false) AS delayed"""
# New jobs, one JSON array: parallel arrays take their driver five times as long to write. Ordered by key as
# `drafts.portions` orders the statements of one call, so that two calls with the same keys cannot deadlock.
INSERTED_JOBS: Final = f"""given AS (
    SELECT *
    FROM json_to_recordset(CAST(:jobs AS json)) AS given (
        id uuid, kind text, priority smallint, deadline timestamptz, not_before timestamptz, source_key text,
        idempotency_key text, digest text, max_attempts smallint, max_compute_seconds float8, model text,
        request text, text_field text, text_digest text
    )
),
inserted AS (
    INSERT INTO job (id, tenant, kind, priority, deadline, not_before, scheduled_for, delayed, source_key,
                     idempotency_key, request_digest, max_attempts, max_compute_seconds, model, batch_id)
    SELECT id, :tenant, kind, priority, deadline,
           {START},
           source_key, idempotency_key, digest, max_attempts, max_compute_seconds, model,
           CAST(:batch_id AS uuid)
    FROM given
    ORDER BY idempotency_key COLLATE "C", id
    ON CONFLICT (tenant, idempotency_key) DO NOTHING
    RETURNING id
)"""  # noqa: S608 - constants
# The job can be dispatched now.
DUE: Final = f"state = 'queued' AND NOT delayed AND not_before <= now() AND {NOT_EXPIRED}"
# The names by which jobs ask for an engine session: its model and its adapters.
MODEL_NAMES: Final = (
    "array_prepend(engine_session.model_name, ARRAY(SELECT jsonb_object_keys(engine_session.adapters)))"
)
# Of a row of `job` that is claimed for an engine of the model `:model_name`: the adapter that it names, if it does not
# name the model. The worker knows the model before the engine's session is recorded.
ADAPTER: Final = """coalesce(nullif(
            coalesce((SELECT model_alias.model_name FROM model_alias WHERE alias = job.model), job.model),
            CAST(:model_name AS text)
        ), '')"""
# Each adapter of an engine with a recent heartbeat, and the model that it adapts.
ADAPTERS_SERVED: Final = f"""(
    SELECT DISTINCT ON (adapter_name) adapter_name, engine_session.model_name AS base
    FROM engine_session CROSS JOIN jsonb_object_keys(adapters) AS adapter_name
    WHERE {HEARD_OF}
    ORDER BY adapter_name, base
) AS adapters_served"""  # noqa: S608 - constants
# The names by which jobs ask for a paused model: its own, and its aliases.
PAUSED_MODELS: Final = """
    SELECT name FROM queue_pause WHERE scope = 'model'
    UNION ALL
    SELECT alias FROM queue_pause JOIN model_alias ON model_name = queue_pause.name WHERE scope = 'model'
"""
# Of a row of `job`. Each list is read once per statement, and hashed; NOT IN, unlike a join, leaves the order to the
# index.
NOT_PAUSED: Final = f"""(
    kind NOT IN (SELECT name FROM queue_pause WHERE scope = 'kind')
    AND tenant NOT IN (SELECT name FROM queue_pause WHERE scope = 'tenant')
    AND (job.model IS NULL OR job.model NOT IN ({PAUSED_MODELS}))
)"""  # noqa: S608 - constants
# Of a queued job: the job or every live engine is paused.
HELD: Final = f"""(NOT {NOT_PAUSED} OR coalesce((
    SELECT bool_and(engine_name IN (SELECT name FROM queue_pause WHERE scope = 'engine'))
    FROM engine_session
    WHERE heartbeat_at > now() - {ENGINE_SILENCE} AND ended_at IS NULL
), false))"""  # noqa: S608 - constants
_DUE_COLUMNS: Final = "id, job.model, priority, deadline, enqueued_at, scheduled_for, source_key"
_PLACE: Final = f"row_number() OVER (PARTITION BY team ORDER BY {', '.join(PLANNED_ORDER)}) AS place"
# The next due jobs that are not paused: at most `any_limit` of those that name no model, and of the `models` of each of
# `teams` as many as `limits` says; if `floors` has a priority, only those above it of as many of each model.
#
# A hundred models would be asked for a hundred times as many as there is room for, and comparing two jobs is what takes
# time: of each model a `few` are read at first, and all there is room for only of those whose few are all among the
# next ones. Of any other, no further job can be among them.
NEXT_DUE: Final = f"""
    (
        SELECT {_DUE_COLUMNS}
        FROM job
        WHERE {DUE} AND model IS NULL AND {NOT_PAUSED}
        ORDER BY {", ".join(PLANNED_ORDER)}
        LIMIT :any_limit
    )
    UNION ALL
    SELECT id, model, priority, deadline, enqueued_at, scheduled_for, source_key
    FROM (
        WITH wanted AS (
            SELECT name, team, places, floor, CASE
                WHEN floor IS NULL THEN least(places, 3 + 4 * places / count(*) OVER (PARTITION BY team)) ELSE places
            END AS few
            FROM unnest(
                CAST(:models AS text[]), CAST(:teams AS integer[]), CAST(:limits AS bigint[]),
                CAST(:floors AS smallint[])
            ) AS asked (name, team, places, floor)
        ), first AS MATERIALIZED (
            SELECT named.*, team, places, few, {_PLACE}
            FROM wanted CROSS JOIN LATERAL (
                SELECT {_DUE_COLUMNS}
                FROM job
                WHERE {DUE} AND job.model = wanted.name AND {NOT_PAUSED}
                ORDER BY {", ".join(PLANNED_ORDER)}
                LIMIT few
            ) AS named
            WHERE floor IS NULL OR priority > floor
        ), further AS MATERIALIZED (
            SELECT model
            FROM first
            WHERE place <= places AND few < places
            GROUP BY model, few
            HAVING count(*) = few
        )
        SELECT *, {_PLACE}
        FROM (
            SELECT id, model, priority, deadline, enqueued_at, scheduled_for, source_key, team, places
            FROM first
            WHERE place <= places AND model NOT IN (SELECT model FROM further)
            UNION ALL
            SELECT named.*, team, places
            FROM wanted CROSS JOIN LATERAL (
                SELECT {_DUE_COLUMNS}
                FROM job
                WHERE {DUE} AND job.model = wanted.name AND {NOT_PAUSED}
                ORDER BY {", ".join(PLANNED_ORDER)}
                LIMIT places
            ) AS named
            WHERE wanted.name IN (SELECT model FROM further)
        ) AS read
    ) AS ranked
    WHERE place <= places
"""  # noqa: S608 - constants
# Of a job that is lost with a machine or a worker yet again, and may be what takes them down.
LOST_TOO_OFTEN: Final = f"""(
    SELECT count(*) >= {FREE_MACHINE_LOSSES}
    FROM attempt
    WHERE attempt.job_id = job.id AND attempt.attempt > budget_after
        AND attempt.reason IN ('machine_lost', 'worker_lost')
)"""  # noqa: S608 - constants

# An edit `e` that no attempt has written another draft after: what is sent back stands until there is one.
STANDING: Final = (
    "NOT EXISTS (SELECT FROM decision AS sent JOIN artifact AS later ON later.job_id = sent.job_id"
    " AND later.attempt > sent.attempt AND (later.draft OR later.verdict = 'accepted')"
    " WHERE sent.job_id = e.job_id AND sent.action = 'send_back' AND sent.version >= e.version)"
)
# The artifact that was accepted or, if none was, the draft that is most useful to who edits it: the one with most
# fields, against which least was found. A draft that was sent back is not chosen once there is another.
BEST_DRAFT: Final = (
    "(artifact.draft OR verdict = 'accepted') DESC,"
    " (SELECT count(*) FROM decision AS sent WHERE sent.job_id = artifact.job_id AND sent.action = 'send_back'"
    " AND sent.attempt < artifact.attempt) DESC,"
    " verdict, artifact.body IS NULL,"
    " CASE jsonb_typeof(artifact.body) WHEN 'object'"
    " THEN (SELECT count(*) FROM jsonb_object_keys(artifact.body)) ELSE 0 END DESC,"
    " (SELECT coalesce(sum(CAST(found ->> 'weight' AS float8)), 0)"
    " FROM jsonb_array_elements(artifact.findings) AS found),"
    " artifact.attempt DESC"
)
# The last attempt's rejected output, for the next attempt. A person who sent it back did so with a note.
REJECTED_BEFORE: Final = (
    "CASE WHEN claimed.failures > 0 OR claimed.version > 1 THEN ("
    "SELECT jsonb_build_object('reason', coalesce(earlier.reason, artifact.reason),"
    " 'detail', coalesce(earlier.detail, ''), 'note', note,"
    " 'artifact', CASE WHEN note IS NULL THEN artifact.body ELSE coalesce(edited.body,"
    " (SELECT artifact.body FROM artifact WHERE artifact.job_id = claimed.id ORDER BY {best_draft} LIMIT 1)) END,"
    " 'drafted', EXISTS (SELECT FROM artifact AS kept WHERE kept.job_id = claimed.id AND kept.draft))"
    " FROM attempt AS earlier LEFT JOIN artifact ON artifact.job_id = earlier.job_id"
    " AND artifact.attempt = earlier.attempt"
    " LEFT JOIN LATERAL (SELECT note FROM decision AS sent WHERE sent.job_id = earlier.job_id"
    " AND sent.attempt >= earlier.attempt AND action = 'send_back' ORDER BY decided_at DESC LIMIT 1) AS sent ON true"
    " LEFT JOIN LATERAL (SELECT body FROM artifact_version AS e WHERE e.job_id = earlier.job_id AND {standing}"
    " ORDER BY e.version DESC LIMIT 1) AS edited ON note IS NOT NULL"
    " WHERE earlier.job_id = claimed.id AND (outcome = 'rejected' OR artifact.reason = 'sent_back')"
    " ORDER BY earlier.attempt DESC LIMIT 1)"
    " END AS previous"
)
FRAGMENTS: Final[dict[str, str]] = {
    "planned_order": ", ".join(PLANNED_ORDER),
    "waiting": WAITING,
    # Each term has a partial index; where most jobs are open, Postgres reads the table instead.
    "open": "((state = 'queued' AND NOT delayed AND model IS NULL)"
    " OR (state = 'queued' AND NOT delayed AND model IS NOT NULL)"
    " OR (state = 'queued' AND delayed) OR state = 'dispatched' OR state = 'running')",
    "due": DUE,
    "next_due": NEXT_DUE,
    "paused_models": PAUSED_MODELS,
    "model_names": MODEL_NAMES,
    "adapter": ADAPTER,
    "adapters_served": ADAPTERS_SERVED,
    "not_paused": NOT_PAUSED,
    "held": HELD,
    # What a dispatch locks, and whether it must stop. Every change of a pause writes the row: a dispatch that waited
    # for it finds another version than its snapshot has, which does not show the pause.
    "locked_control": "SELECT paused, xmin AS version FROM queue_control WHERE name = 'default' FOR SHARE",
    "dispatch_stops": "(EXISTS (SELECT FROM control WHERE paused OR version <>"
    " (SELECT xmin FROM queue_control WHERE name = 'default'))"
    " OR EXISTS (SELECT FROM queue_pause WHERE scope = 'engine' AND name = :engine))",
    # Of the dispatches given. A job that this worker runs already was claimed before, and the answer was lost.
    "claimable": f"((state = 'dispatched' AND NOT cancel_requested AND {NOT_EXPIRED})"
    " OR (state = 'running' AND worker = :worker))",
    "of_tenant": "tenant = coalesce(CAST(:tenant AS text), tenant)",
    "hints": "unnest(CAST(:ids AS uuid[]), CAST(:dispatch_nos AS integer[]))",
    # A filter that is NULL matches everything.
    "selected_dead": "state = 'dead'"
    " AND finished_at >= coalesce(CAST(:since AS timestamptz), '-infinity')"
    " AND finished_at < coalesce(CAST(:until AS timestamptz), 'infinity')"
    " AND (CAST(:ids AS uuid[]) IS NULL OR id = ANY(CAST(:ids AS uuid[])))"
    " AND (CAST(:kinds AS text[]) IS NULL OR kind = ANY(CAST(:kinds AS text[])))"
    " AND (CAST(:reasons AS text[]) IS NULL OR reason = ANY(CAST(:reasons AS text[])))"
    " AND (CAST(:tenant AS text) IS NULL OR tenant = CAST(:tenant AS text))",
    "listed_job": "id, kind, state, priority, deadline, attempt, failures, reason, detail, tenant, worker, model,"
    " idempotency_key, source_key, parent_id, batch_id, enqueued_at, started_at, finished_at, review",
    # Jobs that match a filter, except for their kind and times. Those of one enqueue call have the same `enqueued_at`;
    # follow-ups may have been enqueued in the same instant.
    "selected_jobs": "(CAST(:states AS text[]) IS NULL OR state = ANY(CAST(:states AS text[])))"
    " AND (CAST(:key AS text) IS NULL OR idempotency_key = CAST(:key AS text))"
    " AND (CAST(:key_start AS text) IS NULL OR starts_with(idempotency_key, CAST(:key_start AS text)))"
    " AND (CAST(:source AS text) IS NULL OR starts_with(source_key, CAST(:source AS text)))"
    " AND (CAST(:parent AS uuid) IS NULL OR parent_id = CAST(:parent AS uuid))"
    " AND (CAST(:batch_id AS uuid) IS NULL OR batch_id = CAST(:batch_id AS uuid))"
    " AND (CAST(:batch AS uuid) IS NULL OR (enqueued_at, parent_id IS NULL) IN"
    " (SELECT one.enqueued_at, one.parent_id IS NULL FROM job AS one WHERE one.id = CAST(:batch AS uuid)))",
    # The request of a row of `job_request`, with the text that it refers to: looked up by row, which a join is not
    # where Postgres expects few rows.
    "whole_request": "CASE WHEN text_id IS NULL THEN request"
    " ELSE request || jsonb_build_object(text_field, (SELECT content FROM source_text WHERE source_text.id = text_id))"
    " END AS request",
    # The last three columns of a new row of `job_request`.
    "divided_request": "CAST(request AS jsonb), text_field, CAST(place AS uuid)",
    # A row per text that is `known` or was `stored` just now; two transactions may have stored it.
    "places_of_texts": "places AS (SELECT tenant, digest AS text_digest, min(CAST(id AS text)) AS place"
    " FROM (SELECT id, tenant, digest FROM known UNION ALL SELECT id, tenant, digest FROM stored) AS found"
    " GROUP BY tenant, digest)",
    "without_output": "outcome NOT IN ('succeeded', 'rejected')",
    # Engine sessions that have ended and have no running jobs.
    "unsettled": "ended_at IS NOT NULL AND settled_at IS NULL"
    " AND NOT EXISTS (SELECT FROM job WHERE state = 'running' AND engine_session_id = engine_session.id)",
    # Attempts without output whose usage is not recorded.
    "unbilled": "compute_seconds = 0 AND outcome NOT IN ('succeeded', 'rejected')",
    # Of a job that was `claimed` just now: what its earlier attempts used of its budget, if it has one; and the last of
    # them whose output was rejected, as JSON. Most jobs have no earlier attempt, and neither is looked for.
    "used_before": "CASE WHEN max_compute_seconds IS NOT NULL AND claimed.attempt > budget_after + 1 THEN ("
    "SELECT coalesce(sum(compute_seconds), 0) FROM attempt AS earlier"
    " WHERE earlier.job_id = claimed.id AND earlier.attempt > budget_after) ELSE 0 END AS used_seconds",
    "rejected_before": REJECTED_BEFORE.format(standing=STANDING, best_draft=BEST_DRAFT),
    "delay_margin": DELAY_MARGIN,
    "start": START,
    "inserted_jobs": INSERTED_JOBS,
    "taken_jobs": "array(SELECT CAST(id AS text) FROM given WHERE id NOT IN (SELECT id FROM inserted))",
    "engine_silence": ENGINE_SILENCE,
    "on_this_engine": "engine_session_id IS NOT DISTINCT FROM CAST(:engine_session_id AS uuid)",
    "heard_of": HEARD_OF,
    "in_small_group": f"engine_deaths >= {DEATHS_FOR_SMALL_GROUPS}",
    "runs_alone": f"engine_deaths >= {DEATHS_TO_RUN_ALONE}",
    "deaths_to_run_alone": str(DEATHS_TO_RUN_ALONE),
    "free_machine_losses": str(FREE_MACHINE_LOSSES),
    "lost_too_often": LOST_TOO_OFTEN,
    "undelivered": UNDELIVERED,
    "delivery_state": "CASE WHEN delivered_at IS NOT NULL THEN 'delivered' WHEN dead_at IS NOT NULL THEN 'dead'"
    " ELSE 'waiting' END",
    # Of the rows of `part`, which numbers the jobs that ended: their ids, to those who wait for them.
    "notify_waiters": f"pg_notify(current_schema() || '_{FINISHED}', string_agg(CAST(id AS text), ','))",
    "ids_per_notification": str(IDS_PER_NOTIFICATION),
    "undecided": UNDECIDED,
    "decided": DECIDED,
    # Of a row of `job` that is given up: what becomes of it, and what a person is to do then. As `worker/outcomes`.
    "given_up": f"CASE WHEN {DRAFTED} THEN 'succeeded' ELSE 'dead' END",
    "needs_of_given_up": f"CASE WHEN {DRAFTED} THEN"
    " CASE job.reason WHEN 'superseded' THEN job.reason ELSE 'needs_edit' END END",
    # Of a job that was lost just now, its `state` since.
    "event_of_lost": "CASE state WHEN 'queued' THEN 'lost' WHEN 'succeeded' THEN 'kept' ELSE state END",
    "best_draft": BEST_DRAFT,
    "standing": STANDING,
    "open_batch": OPEN_BATCH,
    "wake_batch_keeper": f"pg_notify(current_schema() || '_{BATCHES}', '')",
    "wake_dispatcher": f"pg_notify(current_schema() || '_{QUEUED}', '')",
}
FRAGMENTS.update(usage_fragments(FRAGMENTS["engine_silence"], FRAGMENTS["best_draft"]))
