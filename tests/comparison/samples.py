"""Students, setups and details made up for tests: plausible shapes, generated values, results of nothing."""

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rapid_lab import names
from rapid_lab.comparison.records import Cell, Details, Excluded, Section, Setup, Student, Table
from rapid_lab.objectives import METHODS, PAPER_METHODS

SEEDS = (42, 43, 44)
STEPS = 900
EPOCHS = 10
HOSTILE = "<script>window.hit=1</script><img src=x onerror=window.hit=1>\"'&amp;\u2028</script><!--"


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def chance(*parts: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(parts).encode()))


def student(method: str, dataset: str = "agnews", seed: int = 42, budget: int = 256, **changes: Any) -> Student:
    """One run; what is not given is made from the names."""
    spends = method in METHODS and METHODS[method].has_relations
    values: dict[str, Any] = {
        "run_id": digest(method, dataset, seed, budget if spends else 0),
        "experiment_id": "1",
        "name": f"{method} {dataset} seed {seed}",
        "method": method,
        "dataset": dataset,
        "seed": seed,
        "config_id": digest("config", method, dataset, budget if spends else 0)[:16],
        "teacher_id": "none" if method == "student_ce" else digest("teacher", dataset)[:16],
        "source_hash": digest("source"),
        "schema_version": names.SCHEMA_VERSION,
        "data_source": "local",
        "data_hash": digest("data", dataset),
        "device": "cpu",
        "hardware": "test processor",
        "is_biased": False,
        "settings": {"relation_budget": str(budget), "seed": str(seed), "epochs": str(EPOCHS), "method": method},
        "correct": correct(method, dataset, seed, budget),
        "total": 7600 if dataset == "agnews" else 872,
        "steps": STEPS,
        "relations": relations(method, budget) if spends else dict.fromkeys(relations("rapid", budget), 0),
        "train_minutes": 20 + 4.1 * _rank(method) + chance("time", method, seed).normal(0, 0.6),
        "peak_mb": 2100 + 60 * _rank(method),
    }
    return Student(**{**values, **changes})


def _rank(method: str) -> int:
    return list(METHODS).index(method) if method in METHODS else len(METHODS)


def correct(method: str, dataset: str, seed: int, budget: int) -> int:
    rank, noise = _rank(method), chance("correct", method, dataset, seed, budget)
    spent = np.log2(budget) if rank > 1 else 8
    if dataset == "agnews":
        return round(7090 + 9 * rank + 3 * spent + noise.normal(0, 7))
    return round(742 + 3 * rank + 1.5 * spent + noise.normal(0, 4))


def relations(method: str, budget: int) -> dict[str, int]:
    pilot = round(0.08 * budget * STEPS) if method == "rapid" else 0
    main = budget * STEPS - pilot
    share = 0.75 if method in ("static", "rapid") else 0.78
    unique_main, unique_pilot = round(share * main), round(0.97 * pilot)
    union = unique_main + round(0.6 * unique_pilot)
    names_in_order = ("main", "pilot", "unique_main", "unique_pilot", "unique_union")
    return dict(zip(names_in_order, (main, pilot, unique_main, unique_pilot, union), strict=True))


def setup(dataset: str = "agnews", budget: int = 256, methods: Sequence[str] = PAPER_METHODS, **changes: Any) -> Setup:
    """Methods of one dataset at one budget, over the same seeds."""
    students = {method: tuple(student(method, dataset, seed, budget) for seed in SEEDS) for method in methods}
    label = f"{dataset}, budget {budget}"
    values = {"label": label, "dataset": dataset, "seeds": SEEDS, "students": students}
    return Setup(**{**values, **changes})


def all_students(setups: Sequence[Setup]) -> list[Student]:
    """Each run once."""
    found = {one.run_id: one for made in setups for group in made.students.values() for one in group}
    return list(found.values())


def details(setups: Sequence[Setup]) -> Details:
    """Everything a store may hold for these runs."""
    students = all_students(setups)
    teachers = {one.teacher_id for one in students} - {"none"}
    return Details(
        selection={one.run_id: selection(one) for one in students},
        steps={one.run_id: steps(one) for one in students},
        calibration={teacher: calibration() for teacher in teachers},
    )


def selection(one: Student) -> pd.DataFrame:
    epochs, noise = np.arange(1, EPOCHS + 1), chance("selection", one.run_id)
    top = (one.correct or 0) / (one.total or 1)
    accuracy = top - 0.05 * np.exp(-epochs / 2) + noise.normal(0, 0.0015, EPOCHS)
    nll = 0.2 + 0.2 * np.exp(-epochs / 2)
    return pd.DataFrame({"epoch": epochs, "step": epochs * (STEPS // EPOCHS), "accuracy": accuracy, "nll": nll})


def steps(one: Student) -> pd.DataFrame:
    step, noise = np.arange(1, STEPS + 1), chance("steps", one.run_id)
    is_uniform = one.method in ("uniform", "gated")
    budget = int(one.settings["relation_budget"])
    pilots = np.where(step > 0.2 * STEPS, round(0.1 * budget), 0) * (one.method == "rapid")
    drift = 0.12 * (step / STEPS) * (one.method == "rapid")
    ess = 1.0 if is_uniform else 0.88 - drift + noise.normal(0, 0.02, STEPS)
    largest = 1.0 if is_uniform else 4 + 3 * drift * noise.exponential(4, STEPS) + noise.exponential(0.4, STEPS)
    return pd.DataFrame(
        {
            "step": step,
            names.ESS_FRACTION: np.broadcast_to(ess, STEPS),
            names.MAX_CORRECTION: np.broadcast_to(largest, STEPS),
            names.RELATIONS_MAIN: float(budget) - pilots,
            names.RELATIONS_PILOT: pilots.astype(float),
        }
    )


def calibration() -> dict[str, Any]:
    """As the artifact of a teacher's run; the lowest bins are empty."""
    edges = np.linspace(0, 1, 16)
    centres = (edges[1:] + edges[:-1]) / 2
    count = [0, 0, 0, *np.round(6 * 1.6 ** np.arange(12)).astype(int).tolist()]
    full = [bool(number) for number in count]

    def state(gap: float, ece: float, nll: float) -> dict[str, Any]:
        right = centres - gap * centres * (1.6 - centres)
        return {
            "count": count,
            "confidence": [float(x) if some else None for x, some in zip(centres, full, strict=True)],
            "accuracy": [float(x) if some else None for x, some in zip(right, full, strict=True)],
            "ece": ece,
            "nll": nll,
        }

    before, after = state(0.22, 0.0412, 0.3163), state(0.02, 0.0071, 0.185)
    return {"temperature": 2.2859, "split": "selection", "bins": 15, "before": before, "after": after}


def results_table(made: Setup) -> Table:
    """A small table of accuracies with everything a cell can carry."""
    rows = []
    for method, group in made.students.items():
        rates = [100 * (one.correct or 0) / (one.total or 1) for one in group]
        ids = tuple(one.run_id for one in group)
        marks = tuple(made.marks.get(method, ()))
        mean, spread = float(np.mean(rates)), float(np.std(rates))
        accuracy = Cell(f"{mean:.3f} \u00b1 {spread:.3f}", mean, spread, method == "rapid", ids, marks)
        seeds = tuple(Cell(f"{rate:.3f}", rate, run_ids=(one.run_id,)) for rate, one in zip(rates, group, strict=True))
        name = METHODS[method].label if method in METHODS else method
        rows.append((Cell(name, name), accuracy, *seeds))
    columns = ("Method", "Accuracy (%)", *(f"Seed {seed}" for seed in made.seeds))
    notes = ("Mean and population standard deviation over paired seeds, from integer counts.",)
    return Table(f"results-{made.dataset}", f"Main results, {made.label}", columns, tuple(rows), notes)


def verdict_table() -> Table:
    """Words that the page shows as badges."""
    words = ("reproduced", "not reproduced", "not comparable", "not run", "better", "worse", "not shown")
    rows = tuple(
        (Cell(f"cell {place}"), Cell(word, word), Cell("a reason of some length")) for place, word in enumerate(words)
    )
    return Table("claims", "Published cells", ("Cell", "Verdict", "Reason"), rows)


def excluded() -> list[Excluded]:
    return [Excluded(digest("crashed"), "rapid agnews seed 45", "the run is FAILED: it did not finish")]


def prose(*paragraphs: str, tables: Sequence[Table] = ()) -> Section:
    return Section("Main results", paragraphs, tuple(tables))
