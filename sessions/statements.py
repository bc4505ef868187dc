"""The statements of the hot path, each composed once.

Django composes a statement, and finds its converters, anew for every call; for rows as wide as
ours that costs several times what the database takes to run it. The fields still convert the
values, so both databases get, and give, what they would through the ORM.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from django.db import connections, models

from .models import AppendOnly, Event, Update

Row = TypeVar("Row", bound=models.Model)
_ROWS_A_STATEMENT = 200
_FEW_ROWS = 5
_DATABASE = "default"


def select_row(
    model: type[Row], where: str, parameters: Sequence[Any], *, lock: bool = False
) -> Row | None:
    """The row of a unique condition, with its lock until the end of the transaction, or None.

    `where` is a constant of ours, never text from outside. On SQLite the transaction itself is
    the lock.
    """
    connection = connections[_DATABASE]
    sql, names, converters = _select_statement(model, where, lock, connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found = cursor.fetchone()
    if found is None:
        return None
    values = list(found)
    for index, column, convert in converters:
        values[index] = convert(values[index], column, connection)
    return model.from_db(_DATABASE, names, values)


@cache
def _select_statement(
    model: type[models.Model], where: str, lock: bool, vendor: str
) -> tuple[str, list[str], list[tuple[int, Any, Any]]]:
    connection = connections[_DATABASE]
    fields: list[Any] = list(model._meta.concrete_fields)
    quote = connection.ops.quote_name
    columns = ", ".join(quote(field.column) for field in fields)
    ending = " FOR UPDATE" if lock and vendor == "postgresql" else ""
    sql = f"SELECT {columns} FROM {quote(model._meta.db_table)} WHERE {where}{ending}"  # noqa: S608
    converters = [
        (index, field.cached_col, convert)
        for index, field in enumerate(fields)
        for convert in (
            *connection.ops.get_db_converters(field.cached_col),
            *field.cached_col.get_db_converters(connection),
        )
    ]
    return sql, [field.attname for field in fields], converters


def update_row(row: models.Model, names: tuple[str, ...]) -> None:
    """Write the named fields of a row that is in the database. One statement."""
    connection = connections[_DATABASE]
    sql, fields = _update_statement(type(row), names)
    with connection.cursor() as cursor:
        cursor.execute(sql, [*_values(row, fields, connection), row.pk])


def insert_rows(rows: Sequence[AppendOnly]) -> None:
    """Insert updates, or events, of one session in the order of their ordinals, and set their
    primary keys. A statement for every 200 rows, or two for all of them."""
    connection = connections[_DATABASE]
    if connection.vendor == "postgresql" and len(rows) > _FEW_ROWS:
        _copy_rows(rows, connection)
        return
    for start in range(0, len(rows), _ROWS_A_STATEMENT):
        some = rows[start : start + _ROWS_A_STATEMENT]
        sql, fields = _insert_statement(type(some[0]), len(some))
        values = [value for row in some for value in _values(row, fields, connection)]
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            keys = sorted(key for (key,) in cursor.fetchall())
        _inserted(some, keys, connection.alias)


def _copy_rows(rows: Sequence[AppendOnly], connection: Any) -> None:
    """PostgreSQL takes many rows fastest by COPY: for an INSERT of a thousand values psycopg
    spends more on the statement than the server on the rows. COPY gives no keys back; the rows
    are found by their ordinals, which are dense and ours."""
    copy, select, fields = _copy_statements(type(rows[0]))
    with connection.cursor() as cursor:
        with cursor.copy(copy) as out:
            for row in rows:
                out.write_row(_values(row, fields, connection))
        cursor.execute(select, [rows[0].session_id, rows[0].ordinal, rows[-1].ordinal])
        keys = [key for (key,) in cursor.fetchall()]
    _inserted(rows, keys, connection.alias)


def _inserted(rows: Sequence[models.Model], keys: list[int], alias: str) -> None:
    for row, key in zip(rows, keys, strict=True):
        row.pk = key
        row._state.adding = False
        row._state.db = alias


def answers_by_id(session: int, ids: Sequence[str]) -> list[tuple[str, bytes, str]]:
    """The id, digest and first answer of each update and event of a session that was sent with
    one of these ids. One statement."""
    with connections[_DATABASE].cursor() as cursor:
        cursor.execute(_answers_statement(len(ids)), [session, *ids, session, *ids])
        return list(cursor.fetchall())


@cache
def _answers_statement(count: int) -> str:
    marks = ", ".join(["%s"] * count)
    selects = [
        f"SELECT client_id, client_digest, answer FROM {model._meta.db_table}"  # noqa: S608
        f" WHERE session_id = %s AND client_id IN ({marks})"
        for model in (Update, Event)
    ]
    return " UNION ALL ".join(selects)


_PLAIN = (models.TextField, models.CharField, models.IntegerField, models.ForeignKey)
_Column = tuple[str, Any]  # attribute, and the field when it has to convert the value


def _values(row: models.Model, columns: list[_Column], connection: Any) -> list[Any]:
    given = row.__dict__
    return [
        given[name] if field is None else field.get_db_prep_save(given[name], connection)
        for name, field in columns
    ]


def _column(field: Any) -> _Column:
    return field.attname, None if isinstance(field, _PLAIN) else field


def _key_column(model: type[models.Model]) -> str:
    key: Any = model._meta.pk
    return str(key.column)


@cache
def _update_statement(
    model: type[models.Model], names: tuple[str, ...]
) -> tuple[str, list[_Column]]:
    fields: list[Any] = [model._meta.get_field(name) for name in names]
    quote = connections[_DATABASE].ops.quote_name
    sets = ", ".join(f"{quote(field.column)} = %s" for field in fields)
    key = quote(_key_column(model))
    sql = f"UPDATE {quote(model._meta.db_table)} SET {sets} WHERE {key} = %s"  # noqa: S608
    return sql, [_column(field) for field in fields]


@cache
def _copy_statements(model: type[models.Model]) -> tuple[str, str, list[_Column]]:
    fields = _insertable(model)
    quote = connections[_DATABASE].ops.quote_name
    columns = ", ".join(quote(field.column) for field in fields)
    table, key = quote(model._meta.db_table), quote(_key_column(model))
    copy = f"COPY {table} ({columns}) FROM STDIN"
    select = (
        f"SELECT {key} FROM {table} WHERE session_id = %s AND ordinal BETWEEN %s AND %s "  # noqa: S608
        "ORDER BY ordinal"
    )
    return copy, select, [_column(field) for field in fields]


def _insertable(model: type[models.Model]) -> list[Any]:
    return [field for field in model._meta.concrete_fields if not field.primary_key]


@cache
def _insert_statement(model: type[models.Model], count: int) -> tuple[str, list[_Column]]:
    fields = _insertable(model)
    quote = connections[_DATABASE].ops.quote_name
    columns = ", ".join(quote(field.column) for field in fields)
    row = f"({', '.join(['%s'] * len(fields))})"
    values = ", ".join([row] * count)
    table, key = quote(model._meta.db_table), quote(_key_column(model))
    sql = f"INSERT INTO {table} ({columns}) VALUES {values} RETURNING {key}"  # noqa: S608
    return sql, [_column(field) for field in fields]
