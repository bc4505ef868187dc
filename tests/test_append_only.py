"""Updates and events can't be changed or deleted behind the application's back."""

import pytest
from django.db import DatabaseError, connection, transaction

from sessions.database import erasing
from sessions.models import Event, Update
from sessions.tokens import create_token
from tests.api.conftest import Api

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("rows")]


@pytest.fixture
def rows(request):
    if request.node.get_closest_marker("django_db").kwargs.get("transaction"):
        request.getfixturevalue("transactional_db")
    else:
        request.getfixturevalue("db")
    Api(create_token("t", ["ingest"])[1]).update("s", ["log_event", "tool_call", {}])


@pytest.mark.parametrize("model", [Update, Event])
@pytest.mark.parametrize("statement", ["UPDATE {table} SET epoch = 9", "DELETE FROM {table}"])
def test_sql_can_neither_change_nor_delete(model, statement):
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement.format(table=model._meta.db_table))
    assert model.objects.get().epoch == 0


@pytest.mark.parametrize("model", [Update, Event])
def test_the_orm_can_neither_change_nor_delete(model):
    row = model.objects.get()
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        row.save()
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        model.objects.all()._raw_delete(connection.alias)
    assert model.objects.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("model", [Update, Event])
def test_a_row_can_not_be_replaced(model):
    table = model._meta.db_table
    if connection.vendor == "sqlite":
        statement = f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}"
    else:
        statement = f"TRUNCATE {table} CASCADE"
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    assert model.objects.count() == 1


def test_erasure_has_the_one_way_through():
    with transaction.atomic(), erasing():
        Event.objects.all().delete()
    assert not Event.objects.exists()
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        Update.objects.all()._raw_delete(connection.alias)
