"""The declarative base: naming convention, column types, and CHECKs from enumerations."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, DateTime, Double, MetaData, SmallInteger, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

Small = Annotated[int, "smallint"]
Big = Annotated[int, "bigint"]


class Base(DeclarativeBase):
    """Base of every table's class."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text(),
        UUID: Uuid(),
        datetime: DateTime(timezone=True),
        float: Double(),
        dict[str, Any]: JSONB(),
        list[dict[str, Any]]: JSONB(),
        list[int]: ARRAY(BigInteger()),
        list[str]: ARRAY(Text()),
        Small: SmallInteger(),
        Big: BigInteger(),
    }


def one_of(column: str, vocabulary: type[StrEnum]) -> CheckConstraint:
    """A CHECK that `column` holds a value of `vocabulary`."""
    words = ", ".join(f"'{word}'" for word in vocabulary)
    return CheckConstraint(f"{column} IN ({words})", name=column)
