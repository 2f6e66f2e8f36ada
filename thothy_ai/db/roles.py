"""Database roles of tenants: each may enqueue its tenant's jobs, follow, change and cancel them, and nothing else.

Row-level security holds them to it, so that producers of every role run the same statements. The tenant is written into
the role's policies: no setting of the session can change it. The owner of the tables bypasses the policies, and does
not pay for them; other roles without a policy see no rows. What a role may insert and update are the columns that the
producers' statements name, read from those statements.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Final

from psycopg import sql
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from thothy_ai.db import online
from thothy_ai.db.statements import expanded
from thothy_ai.errors import RoleExistsError

ROLE_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,39}")
# The producers' statements that write; what `enqueue` does, `enqueue_texts` does, too.
WRITING: Final = ("producer/enqueue_texts", "producer/batch", "queue/cancel", "queue/change")
INSERT: Final = re.compile(r"INSERT INTO (\w+) \(([^)]*)\)")
UPDATE: Final = re.compile(r"UPDATE (\w+)\s+SET (.*?)\s+(?:FROM|WHERE)\b", re.DOTALL)
ASSIGNED: Final = re.compile(r"(?:^|,)\s*(\w+) = ")
COMMENT: Final = re.compile(r"--.*")
LOCK_NOT_AVAILABLE: Final = "55P03"

OPEN: Final = "state IN ('queued', 'dispatched', 'running')"
# A role cancels a job, or changes when it is to run; the table's CHECKs keep a waiting job from becoming a running one,
# and the reverse. The role cannot change the outcome of attempts.
CANCELLED: Final = "cancel_requested AND state IN ('cancelled', 'running')"
CHANGED: Final = "NOT cancel_requested AND state = 'queued' AND num_nonnulls(reason, detail) = 0"
OWN_JOB: Final = "thothy_is_own_job(job_id)"
OWN_TEXT: Final = "thothy_is_own_text(text_id)"
# (table, command, rows that are seen, rows that may be written). `{tenant}` is the role's tenant as a literal.
POLICIES: Final = (
    ("job", "SELECT", "tenant = {tenant}", None),
    ("job", "INSERT", None, "tenant = {tenant}"),
    ("job", "UPDATE", f"tenant = {{tenant}} AND {OPEN}", f"tenant = {{tenant}} AND (({CANCELLED}) OR ({CHANGED}))"),
    ("artifact", "SELECT", "tenant = {tenant}", None),
    ("artifact_version", "SELECT", "tenant = {tenant}", None),
    ("decision", "SELECT", "tenant = {tenant}", None),
    ("brief", "SELECT", "tenant = {tenant}", None),
    ("batch", "INSERT", None, "tenant = {tenant}"),
    ("job_request", "INSERT", None, f"{OWN_JOB} AND {OWN_TEXT}"),
    ("source_text", "SELECT", "tenant = {tenant}", None),
    ("source_text", "INSERT", None, "tenant = {tenant}"),
    ("source_text", "UPDATE", "tenant = {tenant}", "false"),  # a role can lock a text but not change it
    ("job_event", "INSERT", None, f"event IN ('cancelled', 'changed') AND {OWN_JOB}"),
)
# Of these tables a role reads only some columns, and it may lock rows that it finds by them.
READING: Final = {"source_text": ("id", "tenant", "digest")}
LOCKING: Final = {"source_text": ("digest",)}
FIRST: Final = "producer_select_{role}"  # the policy that records the role's tenant

# Postgres gives these rights to everybody, and each takes disk past the policies: the statement that takes one back,
# whether PUBLIC has it, and whether this session may take it.
PUBLIC: Final = (
    (
        "REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC",
        "has_database_privilege('public', datname, 'TEMPORARY')",
        "pg_has_role(datdba, 'USAGE')",
    ),
    (
        "REVOKE EXECUTE ON FUNCTION lo_create(oid), lo_creat(integer), lo_from_bytea(oid, bytea) FROM PUBLIC",
        "has_function_privilege('public', 'lo_create(oid)', 'EXECUTE')",
        "(SELECT rolsuper FROM pg_roles WHERE rolname = current_user)",
    ),
)
TAKEN_TURNS: Final = text("SELECT pg_advisory_xact_lock(hashtextextended('thothy rights of everybody', 0))")

ROLES = text(
    """
    SELECT roles[1]::text AS role, obj_description(pol.oid, 'pg_policy') AS tenant, rolcanlogin AS login
    FROM pg_policies JOIN pg_policy AS pol ON polname = policyname AND polrelid = to_regclass('job')
        JOIN pg_roles ON rolname = roles[1]
    WHERE schemaname = current_schema() AND tablename = 'job' AND policyname = 'producer_select_' || roles[1]
    ORDER BY role
    """
)
HAS_ROLE = text("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :name)")
HAS_POLICY = text("SELECT EXISTS (SELECT FROM pg_policy WHERE polname = :name AND polrelid = to_regclass(:table))")


@dataclass(frozen=True, slots=True)
class Role:
    """A tenant's database role. `password` is known only when the role has just been created."""

    name: str
    tenant: str
    login: bool = True
    password: str | None = None


def create_role(engine: Engine, name: str, tenant: str, *, login: bool = True) -> Role:
    """Create a role that may enqueue and read the jobs of this tenant; with a login, it has a new password.

    Raises `ValueError` for a name that cannot be one, `RoleExistsError`, and the driver's error if this role may not
    create roles.
    """
    check_name(name, tenant)
    role = Role(name, tenant, login, token_urlsafe(24) if login else None)

    def create(connection: Connection) -> None:
        _refuse_existing(connection, role.name)
        login = sql.SQL("LOGIN PASSWORD {}").format(role.password) if role.password else sql.SQL("NOLOGIN")
        created = sql.SQL("CREATE ROLE {} NOSUPERUSER NOCREATEDB NOCREATEROLE {}")
        _run(connection, created.format(_name(role.name), login))
        _allow(connection, role)

    _patiently(engine, create)
    return role


def check_name(name: str, tenant: str) -> None:
    """Raises `ValueError` if a role cannot have this name, or a tenant that."""
    if not ROLE_NAME.fullmatch(name) or name.startswith("pg_"):
        rule = "must be 1 to 40 lower-case letters, digits and underscores, and must not begin with pg_"
        raise ValueError(f"{name!r} {rule}")
    if not tenant:
        raise ValueError("the tenant is empty")


def drop_role(engine: Engine, name: str) -> bool:
    """Drop a role that `create_role` made, with its policies and rights. False if there is none of this name."""
    with engine.connect() as connection:
        if name not in {role.name for role in list_roles(connection)}:
            return False

    def drop(connection: Connection) -> None:
        _run(connection, sql.SQL("DROP OWNED BY {}").format(_name(name)))
        _run(connection, sql.SQL("DROP ROLE {}").format(_name(name)))

    _patiently(engine, drop)
    return True


def list_roles(connection: Connection) -> list[Role]:
    """The roles of tenants in this schema, by name."""
    return [Role(row.role, row.tenant or "", row.login) for row in connection.execute(ROLES)]


def rights_of_everybody(connection: Connection, *, may_take: bool = False) -> list[str]:
    """Statements that revoke from PUBLIC the rights that tenants' roles inherit; with `may_take`, those that we can
    run.

    Such a right lets a tenant fill the disk: with temporary tables or large objects.
    """
    found = []
    for statement, given, allowed in PUBLIC:
        asked = f"{given} AND {allowed}" if may_take else given
        database = connection.scalar(
            text(f"SELECT datname FROM pg_database WHERE datname = current_database() AND {asked}")  # noqa: S608
        )
        if database is not None:
            found.append(sql.SQL(statement).format(database=_name(database)).as_string(None))
    return found


def refresh_roles(connection: Connection) -> None:
    """Give each role the rights and policies that this version's statements need: after a migration."""
    for role in list_roles(connection):
        _allow(connection, role)


def written_columns() -> dict[tuple[str, str], tuple[str, ...]]:
    """The columns that the producers' statements write, by (command, table)."""
    found: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)  # as an ordered set
    for name in WRITING:
        code = COMMENT.sub("", expanded(name))
        for table, columns in INSERT.findall(code):
            found["INSERT", table] |= dict.fromkeys(column.strip() for column in columns.split(","))
        for table, assigned in UPDATE.findall(code):
            found["UPDATE", table] |= dict.fromkeys(ASSIGNED.findall(assigned))
    return {written: tuple(columns) for written, columns in found.items()}


def _refuse_existing(connection: Connection, name: str) -> None:
    """A concurrent call with this name is still possible; then the driver raises the error."""
    if not connection.scalar(HAS_ROLE, {"name": name}):
        return
    tenant = next((role.tenant for role in list_roles(connection) if role.name == name), None)
    if tenant is None:
        raise RoleExistsError(
            f"Postgres already has a role {name} that does not belong to a tenant: choose another name"
        )
    raise RoleExistsError(
        f"role {name} exists already, for tenant {tenant}; its password is not stored: for a new one, run"
        f" `thothy roles drop {name}` and create it again"
    )


def _allow(connection: Connection, role: Role) -> None:
    """Grant a role its missing rights and policies, and revoke the harmful rights of PUBLIC."""
    connection.execute(TAKEN_TURNS)
    for statement in rights_of_everybody(connection, may_take=True):
        connection.exec_driver_sql(statement)
    schema = str(connection.scalar(text("SELECT current_schema()")))
    _run(connection, sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(_name(schema), _name(role.name)))
    for table in dict.fromkeys(policy[0] for policy in POLICIES):
        if not connection.scalar(text("SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass(:t)"), {"t": table}):
            _run(connection, sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(_name(table)))
    for (command, table), columns in written_columns().items():
        _run(connection, _grant(f"{command} ({', '.join(columns)})", table, role))
    for right, tables in (("SELECT", READING), ("UPDATE", LOCKING)):
        for table, columns in tables.items():
            _run(connection, _grant(f"{right} ({', '.join(columns)})", table, role))
    for policy in POLICIES:
        if policy[1] == "SELECT" and policy[0] not in READING:
            _run(connection, _grant("SELECT", policy[0], role))
        _restrict(connection, role, *policy)
    comment = sql.SQL("COMMENT ON POLICY {} ON job IS {}")
    _run(connection, comment.format(_name(FIRST.format(role=role.name)), sql.Literal(role.tenant)))


def _restrict(
    connection: Connection, role: Role, table: str, command: str, seen: str | None, written: str | None
) -> None:
    name = f"producer_{command.lower()}_{role.name}"
    if connection.scalar(HAS_POLICY, {"name": name, "table": table}):
        return
    create = f"CREATE POLICY {{name}} ON {{table}} FOR {command} TO {{role}}"
    create += f" USING ({seen})" if seen else ""
    create += f" WITH CHECK ({written})" if written else ""
    parts = {"name": _name(name), "table": _name(table), "role": _name(role.name), "tenant": sql.Literal(role.tenant)}
    _run(connection, sql.SQL(create).format(**{key: part for key, part in parts.items() if f"{{{key}}}" in create}))


def _grant(right: str, table: str, role: Role) -> sql.Composed:
    return sql.SQL(f"GRANT {right} ON {{}} TO {{}}").format(_name(table), _name(role.name))


def _name(identifier: str) -> sql.Identifier:
    return sql.Identifier(identifier)


def _run(connection: Connection, statement: sql.Composed) -> None:
    connection.exec_driver_sql(statement.as_string(None).replace("%", "%%"))  # the driver looks for parameters


def _patiently(engine: Engine, act: Callable[[Connection], None]) -> None:
    """Run in one transaction with brief waits for locks and retries, as for a migration."""
    until = time.monotonic() + online.PATIENCE_SECONDS
    while True:
        try:
            with engine.begin() as connection:
                connection.execute(text(online.LIMIT_LOCKS.replace("SET ", "SET LOCAL ")))
                return act(connection)
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE or time.monotonic() > until:
                raise
        time.sleep(online.PAUSE_SECONDS)
