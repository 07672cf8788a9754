"""A PostgreSQL database, which any number of machines share: trials have a heartbeat, the study a lock of its own."""

import uuid
import warnings

import sqlalchemy
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy.exc import SQLAlchemyError

from rapid_lab.errors import SettingError
from rapid_lab.sweep.storage import LOCK_SECONDS, Lock, Owner, held, signature
from rapid_lab.tracking.advisory import advisory_lock
from rapid_lab.tracking.redaction import without_secrets

CONNECT_SECONDS = 5
HEARTBEAT_SECONDS = 5
GRACE_SECONDS = 20


class Postgres:
    """A database that any number of machines share."""

    def __init__(self, url: str, study: str) -> None:
        self.shown = without_secrets(url)
        try:
            self.url = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
        except (SQLAlchemyError, ValueError) as error:
            raise self.unusable(str(error)) from None
        self.study = study
        self.lock: Lock = _AdvisoryLock(self, f"study {study}")
        self._name = uuid.uuid4().hex
        self._storage: RDBStorage | None = None

    def engine(self) -> sqlalchemy.Engine:
        """An engine whose connections are closed when they are given back."""
        return sqlalchemy.create_engine(
            self.url, poolclass=sqlalchemy.NullPool, connect_args={"connect_timeout": CONNECT_SECONDS}
        )

    def check(self) -> None:
        """Refuse a database that does not answer; nothing is made."""
        try:
            with self.engine().connect():
                pass
        except ImportError as error:
            raise self.unusable(f"{error}; pip install 'rapid-lab[postgres]'") from None
        except SQLAlchemyError as error:
            raise self.unusable(_first_line(error)) from None

    def unusable(self, reason: str) -> SettingError:
        """The fault of a database that does not do what it is asked."""
        return SettingError(f"storage must be a database that answers, got {self.shown!r}: {without_secrets(reason)}")

    def existing(self) -> BaseStorage | None:
        """The tables, if somebody has made them."""
        engine = self.engine()
        # The last one that Optuna makes: a storage half made is not there yet.
        has_tables = sqlalchemy.inspect(engine).has_table("version_info")
        return self.open() if has_tables else None

    def open(self) -> BaseStorage:
        """The tables, made once, and a heartbeat for every trial."""
        if self._storage is None:
            with held(_AdvisoryLock(self, "tables")), warnings.catch_warnings():
                warnings.simplefilter("ignore", ExperimentalWarning)
                self._storage = RDBStorage(
                    self.url.render_as_string(hide_password=False),
                    engine_kwargs={"pool_pre_ping": True, "connect_args": {"connect_timeout": CONNECT_SECONDS}},
                    heartbeat_interval=HEARTBEAT_SECONDS,
                    grace_period=GRACE_SECONDS,
                )
        return self._storage

    def owner(self) -> Owner:
        """This process."""
        return {**signature(), "worker": self._name}

    def is_dead(self, owner: Owner) -> bool:
        """Only where nobody has signed: who has is judged by his heartbeat."""
        return not owner

    def leave(self) -> None:
        """Close what is open."""
        if self._storage is not None:
            self._storage.remove_session()
            self._storage.engine.dispose()
            self._storage = None


class _AdvisoryLock:
    """A lock of the database, which lets it go when the connection breaks."""

    def __init__(self, place: Postgres, name: str) -> None:
        self._place, self._name = place, name
        self._connection: sqlalchemy.Connection | None = None

    def acquire(self) -> None:
        try:
            self._connection = advisory_lock(self._place.engine(), self._name, seconds=LOCK_SECONDS)
        except SQLAlchemyError as error:
            raise self._place.unusable(_first_line(error)) from None

    def release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # Closing ends the session, and with it the lock: a fault on the way cannot leave it behind.
            connection.close()


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
