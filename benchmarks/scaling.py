"""The tables of docs/scaling.md: what large work costs, from formulas, the paper's minutes and measured constants.

    python benchmarks/scaling.py    # prints them; a test holds the page to them

Nothing is measured here. Minutes are the paper's on its RTX 3080; everything else is arithmetic on sizes.
"""

import math
from collections.abc import Sequence

import harness
from queue_simulator import LOCK_SECONDS, OWN_SECONDS, simulate

from rapid_lab import names
from rapid_lab.comparison.published import published

# Measured on sqlite (2 cores); PostgreSQL's rows are of the same order, and were not measured.
ROW_BYTES = 252
WIRE_BYTES = 94  # of a row in a request of a thousand, as MLflow's client writes it
VALUE_SECONDS = 0.26e-3  # of the store's time, in batches of about 1000
SYSTEM_SECONDS = 10.0  # between two looks at the machine, two values each

TRAIN = {"agnews": 108_000, "sst2": 60_614}
EPOCHS, BATCH, SEEDS = 10, 32, 3
HIDDEN, CLASSES = 768, 4
# The student: embeddings, four layers and the classifier of DistilBERT.
PARAMETERS = (30_522 + 512 + 2) * 768 + 4 * 7_087_872 + (768 * 768 + 768) + (768 * CLASSES + CLASSES)
FLOAT = 4
ADAM = 4 * FLOAT  # weight, gradient and two moments
GPU_MEMORY = 10 * 2**30  # of the paper's card
LARGE = 65_536


def steps(dataset: str, batch_size: int = BATCH) -> int:
    """Optimiser steps of a run; the last partial batch counts."""
    return EPOCHS * math.ceil(TRAIN[dataset] / batch_size)


def minutes(dataset: str, method: str) -> float:
    """The paper's training time."""
    return float(published()["compute"][dataset][method]["minutes"][0])


def peak_megabytes(dataset: str, method: str) -> int:
    """The paper's peak memory."""
    return int(published()["compute"][dataset][method]["peak_memory_mb"])


def rows(num_steps: int, seconds: float) -> int:
    """Metric rows a run leaves in the database: of its steps, of its epochs, of its end, and of the machine."""
    machine = 2 * round(seconds / SYSTEM_SECONDS)
    once = len(names.FINAL_METRICS) + EPOCHS * len(names.EPOCH_METRICS)
    return num_steps * len(names.STEP_METRICS) + once + machine


def paper_rows(dataset: str, method: str) -> int:
    """Those of a run of the paper."""
    return rows(steps(dataset), 60 * minutes(dataset, method))


def teacher_minutes(dataset: str) -> float:
    """A layer-epoch of the plain student, times layers and epochs of the teacher; a third for a forward pass."""
    layer = minutes(dataset, "student_ce") / (4 * EPOCHS)
    layers = {"agnews": 12, "sst2": 4}[dataset]
    return layer * layers * (3 + 1 / 3)


def replication() -> list[list[str]]:
    """Six methods, three seeds, two datasets, and the two teachers."""
    found, total = [], [0.0] * 5
    for dataset in TRAIN:
        methods = list(published()["compute"][dataset])
        runs = SEEDS * len(methods)
        hours = SEEDS * sum(minutes(dataset, method) for method in methods) / 60
        teacher = teacher_minutes(dataset) / 60
        written = SEEDS * sum(paper_rows(dataset, method) for method in methods)
        values = [runs, hours, teacher, written, written * ROW_BYTES / 1e9]
        total = [a + b for a, b in zip(total, values, strict=True)]
        found.append([dataset, *_replicated(values)])
    return [*found, ["both", *_replicated(total)]]


def _replicated(values: Sequence[float]) -> list[str]:
    runs, hours, teacher, written, size = values
    return [f"{runs:.0f}", f"{hours:.1f}", f"{teacher:.2f}", f"{written / 1e6:.1f} million", f"{size:.2f} GB"]


def sweep(trials: int = 1000) -> list[list[str]]:
    """A search of the full method, three seeds a trial, one GPU a worker."""
    found = []
    for dataset in TRAIN:
        seconds = SEEDS * 60 * minutes(dataset, "rapid")
        written = trials * SEEDS * paper_rows(dataset, "rapid")
        for gpus in (8, 64):
            course = simulate(workers=gpus, trials=trials, lock=LOCK_SECONDS, own=lambda _, s=seconds: OWN_SECONDS + s)  # type: ignore[misc]
            arriving = gpus * paper_rows(dataset, "rapid") / (60 * minutes(dataset, "rapid"))
            found.append(
                [
                    dataset,
                    str(gpus),
                    f"{trials * seconds / 3600:,.0f}",
                    f"{course.makespan / 86400:.1f} days",
                    f"{peak_megabytes(dataset, 'rapid'):,} MB",
                    f"{written / 1e6:,.0f} million",
                    f"{written * ROW_BYTES / 1e9:.0f} GB",
                    f"{arriving:,.0f}",
                    f"{arriving * WIRE_BYTES / 1e6:.2f} MB/s",
                    f"{100 * arriving * VALUE_SECONDS:.0f} %",
                    f"{trials * SEEDS * PARAMETERS * FLOAT / 1e9:.0f} GB",
                    f"{100 * course.lock_share:.3f} %",
                ]
            )
    return found


def gathered(batch_size: int, ranks: int) -> tuple[float, float]:
    """Bytes a rank receives in a step for the outputs of the others, and for the gradient's sum."""
    others = (ranks - 1) / ranks
    return others * batch_size * (HIDDEN + CLASSES) * FLOAT, 2 * others * PARAMETERS * FLOAT


def example_bytes() -> float:
    """Activations of one example, from the paper's peak memory at 32 of them."""
    return (peak_megabytes("agnews", "rapid") * 2**20 - PARAMETERS * ADAM) / BATCH


def largest_share() -> int:
    """Examples that fit on the paper's card beside the model, the gathered batch and the teacher's."""
    shared = 3 * LARGE * HIDDEN * FLOAT  # representations, their gradient, the teacher's
    return math.floor((GPU_MEMORY - PARAMETERS * ADAM - shared) / example_bytes())


def examples_a_second() -> float:
    """Of one of the paper's cards."""
    return BATCH * steps("agnews") / (60 * minutes("agnews", "rapid"))


def large_seconds(ranks: int) -> float:
    """A whole run on AG News at B = 65,536: its arithmetic, and after it the network at 10 Gb/s."""
    examples, num_steps = EPOCHS * TRAIN["agnews"], steps("agnews", LARGE)
    received = gathered(examples, ranks)[0] + num_steps * gathered(LARGE, ranks)[1]
    return examples / (ranks * examples_a_second()) + 8 * received / 10e9


def large_batch() -> list[list[str]]:
    """One step at B = 65,536 on ranks of the paper's card, and a run of them."""
    found = []
    for ranks in (8, 64, 512):
        share = LARGE // ranks
        relations, gradient = gathered(LARGE, ranks)
        network, seconds = relations + gradient, large_seconds(ranks)
        found.append(
            [
                str(ranks),
                f"{share:,}",
                f"{(share * example_bytes() + PARAMETERS * ADAM + 3 * LARGE * HIDDEN * FLOAT) / 2**30:.1f} GiB",
                f"{relations / 1e6:.0f} MB",
                f"{gradient / 1e6:.0f} MB",
                f"{8 * network / 10e9:.2f} s / {8 * network / 100e9:.3f} s",
                f"{share / examples_a_second():.1f} s",
                f"{seconds / 60:.1f} minutes",
                f"{ranks * seconds / 3600:.1f}",
                str(rows(steps("agnews", LARGE), seconds)),
            ]
        )
    return found


TABLES = {
    "replication": (
        ["data", "runs", "GPU hours", "of the teacher, besides", "metric rows", "database"],
        replication,
    ),
    "sweep": (
        [
            "data", "GPUs", "GPU hours", "time", "memory each", "metric rows", "database", "rows a second", "network",
            "of one sqlite writer", "selected weights", "lock held",
        ],
        sweep,
    ),
    "large batch": (
        [
            "GPUs", "examples each", "memory each", "outputs received", "gradient received",
            "network at 10 / 100 Gb/s", "arithmetic", "a run", "GPU hours", "metric rows",
        ],
        large_batch,
    ),
}  # fmt: skip


def rendered(name: str) -> str:
    """One of the tables as Markdown."""
    header, make = TABLES[name]
    return harness.table(header, make())


if __name__ == "__main__":
    for name in TABLES:
        print(f"## {name}\n\n{rendered(name)}\n")
    print(f"activations of an example: {example_bytes() / 2**20:.1f} MiB; most that fit: {largest_share()}")
