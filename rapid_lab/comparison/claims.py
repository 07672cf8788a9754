"""The claims page: every published cell beside ours, with a verdict and its reason."""

from collections import Counter
from collections.abc import Sequence

from rapid_lab.comparison.judging import OUTCOMES, STANDARD_ERRORS, Judged, judge
from rapid_lab.comparison.published import GPU, KINDS, Kind, published_claims, published_seeds
from rapid_lab.comparison.records import Cell, Details, Section, Setup, Table
from rapid_lab.comparison.statistics import honest_miss_rate
from rapid_lab.comparison.wording import method_label
from rapid_lab.harmless import file_name

COLUMNS = ("Data", "Method", "Cell", "Published", "Ours", "Verdict", "Reason")


def claims_section(setups: Sequence[Setup], details: Details) -> Section:
    """All published cells, whatever was run."""
    judged = [judge(claim, setups, details) for claim in published_claims()]
    counts = Counter(item.outcome for item in judged)
    tally = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
    paragraphs = (
        f"Of the paper's {len(judged)} published cells: {tally}.",
        "A cell is compared only with runs that agree with the paper in everything the cell depends on; numbers of "
        "ours that do not are shown all the same, with the reason. 'Not comparable' speaks neither for nor against "
        "the paper.",
    )
    tables = (summary_table(judged), *(kind_table(kind, judged) for kind in KINDS))
    return Section("The paper's claims", paragraphs, tables)


def summary_table(judged: Sequence[Judged]) -> Table:
    """How many cells of each kind came out how."""
    rows = []
    for kind in KINDS:
        counts = Counter(item.outcome for item in judged if item.claim.kind == kind)
        numbers = (*(counts[outcome] for outcome in OUTCOMES), sum(counts.values()))
        rows.append((Cell(kind, kind), *(Cell(str(number), number) for number in numbers)))
    return Table("claims", "Published cells by verdict", ("Kind", *OUTCOMES, "all"), tuple(rows))


def kind_table(kind: Kind, judged: Sequence[Judged]) -> Table:
    """Every cell of one kind."""
    rows = tuple(_row(item) for item in judged if item.claim.kind == kind)
    return Table(f"claims_{file_name(kind)}", f"Published cells: {kind}", COLUMNS, rows, _notes(kind))


def _row(item: Judged) -> tuple[Cell, ...]:
    claim, runs = item.claim, tuple(student.run_id for student in item.students)
    if claim.seed is not None:
        runs = tuple(student.run_id for student in item.students if student.seed == claim.seed)
    return (
        Cell(claim.dataset, claim.dataset),
        Cell(method_label(claim.method) if claim.method else "teacher", claim.method),
        Cell(claim.what.replace("_", " "), claim.what),
        Cell(claim.text, float(claim.value)),
        Cell(item.text, None if item.ours is None else float(item.ours), run_ids=runs, marks=item.marks),
        Cell(item.outcome, item.outcome),
        Cell(item.reason),
    )


def _notes(kind: Kind) -> tuple[str, ...]:
    seeds = len(published_seeds())
    rate = honest_miss_rate(seeds, published_seeds=seeds)
    interval = (
        f"Under the same protocol and with at least the paper's seeds. The interval knows the chance in our seeds, not "
        f"that in the paper's {seeds}: an honest repetition with {seeds} seeds misses it {100 * rate:.0f} % of the "
        "time, one with more seeds oftener. A wide interval reproduces easily: its width is printed."
    )
    hardware = f"Only on the paper's GPU model, {GPU}, named as CUDA names it."
    errors = (
        f"Distinct pairs: the difference within {STANDARD_ERRORS} of its standard errors, from the variance of our "
        "steps and the number of steps on both sides; pairs and batches are chance, another teacher is not."
    )
    by_kind: dict[Kind, tuple[str, ...]] = {
        "accuracy": (f"Reproduced: the published mean is inside our 95 % t interval. {interval}",),
        "seed accuracy": (
            "A seed means other random numbers in another program, so a published seed counts as one more draw: "
            "reproduced is inside our 95 % prediction interval; 5 % of honest ones fall outside.",
        ),
        "minutes": (f"Reproduced: the published mean is inside our 95 % t interval. {hardware}",),
        "peak memory": (
            f"Reproduced: the published figure is inside our 95 % t interval. {hardware} The paper's MB may be 10^6 or "
            "2^20 bytes; ours are 2^20.",
        ),
        "relations": (
            "Means a batch. Main and pilot: equal as printed. Both, and distinct pairs of uniform draws, depend on "
            f"sizes alone, so other models do not matter to them. {errors}",
        ),
        "teacher": ("Shown, not judged: the paper trained one teacher for each dataset, and so do we.",),
    }
    return by_kind[kind]
