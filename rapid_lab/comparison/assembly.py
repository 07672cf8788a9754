"""A comparison put together: read from the store, and made into the sections of a report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rapid_lab.comparison.records import Details, Excluded, Section, Setup, Student, Table
from rapid_lab.comparison.setups import build_setups
from rapid_lab.comparison.students import read_students
from rapid_lab.comparison.tables import paper_tables
from rapid_lab.errors import SettingError
from rapid_lab.harmless import shown
from rapid_lab.tracking.door import tracking_uri
from rapid_lab.tracking.reading import StoredRun, Wanted, read_runs
from rapid_lab.tracking.redaction import without_secrets

FEW = 5  # reasons that fit into one message


@dataclass(frozen=True)
class Comparison:
    """What the store holds, as tables may show it."""

    setups: tuple[Setup, ...]
    excluded: tuple[Excluded, ...]
    runs: Mapping[str, StoredRun]

    @cached_property
    def students(self) -> dict[str, Student]:
        """Every student of a table, by run id."""
        cells = [cell for setup in self.setups for cell in (*setup.students.values(), *setup.unpaired.values())]
        return {student.run_id: student for cell in cells for student in cell}

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The paper's tables."""
        return paper_tables(self.setups)

    def table(self, name: str) -> Table:
        """One of the paper's tables."""
        return next(table for table in self.tables if table.name == name)


def read_comparison(wanted: Wanted) -> Comparison:
    """The students of the store in their setups; refused where there is none."""
    runs = read_runs(wanted)
    students, refused = read_students(runs)
    setups, left_out = build_setups(students)
    excluded = (*refused, *left_out)
    if not setups:
        raise SettingError(_nothing(wanted, runs, excluded))
    return Comparison(tuple(setups), excluded, {run.run_id: run for run in runs})


def _nothing(wanted: Wanted, runs: Sequence[StoredRun], excluded: Sequence[Excluded]) -> str:
    filters = [
        *(f"experiment {shown(name)}" for name in wanted.experiments),
        *(f"dataset {shown(name)}" for name in wanted.datasets),
        *(f"tag {shown(name)} {shown(value)}" for name, value in wanted.tags.items()),
        *(f"run {shown(run_id)}" for run_id in wanted.run_ids),
    ]
    asked = f" with {', '.join(filters[:FEW])}" if filters else ""
    message = f"the tracking store must hold a finished student{asked}, got none among {len(runs)} runs"
    if not excluded:
        return f"{message} of {without_secrets(tracking_uri())}: `rapid-lab demo` makes some"
    reasons = [f"{one.name} ({one.run_id}): {one.reason}" for one in excluded[:FEW]]
    rest = f"; and {len(excluded) - FEW} more" if len(excluded) > FEW else ""
    return f"{message}: {'; '.join(reasons)}{rest}"


def make_sections(comparison: Comparison, details: Details) -> list[Section]:
    """The report from the results to what they rest on."""
    # Here, since plotly and scipy take seconds that the main table alone does not need.
    from rapid_lab.comparison.claims import claims_section
    from rapid_lab.comparison.figures import figures_section
    from rapid_lab.comparison.verdicts import statistics_section

    tables = {table.name: table for table in comparison.tables}
    results = Section(
        "Results",
        summary(comparison),
        tuple(tables[name] for name in ("main_results", "seed_results", "components")),
    )
    cost = Section("Cost", (), tuple(tables[name] for name in ("compute", "relations")))
    return [
        results,
        figures_section(comparison.setups, details),
        *(statistics_section(setup, details) for setup in comparison.setups),
        cost,
        claims_section(comparison.setups, details),
    ]


def summary(comparison: Comparison) -> tuple[str, ...]:
    """What was compared, in sentences."""
    datasets = ", ".join(sorted({setup.dataset for setup in comparison.setups}))
    students, setups = (
        _counted(len(comparison.students), "finished student"),
        _counted(len(comparison.setups), "setup"),
    )
    left_out = f" {_counted(len(comparison.excluded), 'run')} left out, each with its reason at the end."
    return (
        f"{students} in {setups} of {datasets}.{left_out if comparison.excluded else ''}",
        "A setup has one dataset and its hash, one teacher and equal settings, so far as they concern its methods; "
        "every mean of it is over the same seeds.",
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
