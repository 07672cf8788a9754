"""Locks that a PostgreSQL database keeps for processes of any machine, and lets go with their connection."""

import hashlib

import sqlalchemy


def advisory_lock(engine: sqlalchemy.Engine, name: str, *, seconds: int) -> sqlalchemy.Connection:
    """Wait for the lock of this name; it is held until the connection is closed, or breaks."""
    digest = hashlib.sha256(f"rapid-lab {name}".encode()).digest()
    key = int.from_bytes(digest[:8], "big", signed=True)
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    try:
        connection.execute(sqlalchemy.text(f"SET lock_timeout = '{seconds}s'"))
        connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(:key)"), {"key": key})
    except BaseException:
        connection.close()
        raise
    return connection
