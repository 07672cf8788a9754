"""Examples a second: our KD and RAPID with batches by length against the same KD written with the HF Trainer.

    RAPID_DATA_DIR=... RAPID_MODEL_DIR=... python benchmarks/throughput.py [--rounds 8] [--report]

MiniLM pair (benchmarks/minilm_pair.py), B = 32, one process, arms in turns of one epoch. The Trainer runs its teacher
every step, as its users do; ours reads the teacher's cached signals. Filling the cache is timed too, since a single
epoch would have to pay for it.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import harness
import torch
from minilm_pair import CPU, FLOAT, MAX_LENGTH, Pair, load_pair
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

from rapid_lab.allocation import keep_freed_memory
from rapid_lab.method.distillation import distillation_loss
from rapid_lab.training.evaluation import predict
from rapid_lab.training.loop import train

BATCH = 32
TARGET = 2.0


class Distiller(Trainer):
    """Cross-entropy and KD with the teacher in the loop."""

    def __init__(self, teacher: torch.nn.Module, **options: Any) -> None:
        super().__init__(**options)
        self.teacher = teacher.eval()

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        outputs = model(**inputs)
        features = {name: value for name, value in inputs.items() if name != "labels"}
        with torch.no_grad():
            teacher_logits = self.teacher(**features).logits
        loss = outputs.loss + distillation_loss(outputs.logits, teacher_logits, kd_temperature=2.0)
        return (loss, outputs) if return_outputs else loss


def trainer_seconds(pair: Pair, folder: Path) -> float:
    """Seconds an epoch of the Trainer takes; dynamic padding, its default order."""
    encoded = pair.tokenizer(pair.texts, truncation=True, max_length=MAX_LENGTH)["input_ids"]
    labels = pair.encoded.labels.tolist()
    rows = [{"input_ids": ids, "labels": label} for ids, label in zip(encoded, labels, strict=True)]
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        learning_rate=5e-5,
        weight_decay=0.01,
        warmup_steps=0.06,
        optim="adamw_torch_fused",
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_steps=50,
        disable_tqdm=True,
    )
    trainer = Distiller(
        pair.teacher_model,
        model=pair.student(),
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(pair.tokenizer),
    )
    started = time.perf_counter()
    trainer.train()
    return time.perf_counter() - started


def our_seconds(pair: Pair, method: str, folder: Path, *, group_by_length: bool) -> float:
    """Seconds an epoch of our loop takes, with the padding of batches."""
    job = pair.job(method, folder, group_by_length=group_by_length)
    seconds = train(job).progress.seconds
    job.checkpoint.unlink()
    return seconds


def measure(pair: Pair, rounds: int, folder: Path) -> dict[str, float]:
    """Median examples a second of each arm, and of filling the teacher's cache."""
    arms = {
        "HF Trainer, KD, live teacher": lambda: trainer_seconds(pair, folder),
        "KD, by length": lambda: our_seconds(pair, "kd", folder, group_by_length=True),
        "RAPID, by length": lambda: our_seconds(pair, "rapid", folder, group_by_length=True),
        "KD, random order": lambda: our_seconds(pair, "kd", folder, group_by_length=False),
        "RAPID, random order": lambda: our_seconds(pair, "rapid", folder, group_by_length=False),
        "filling the cache (once)": lambda: cache_seconds(pair),
    }
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(rounds):
        for name, arm in arms.items():
            seconds[name].append(arm())
        rates = {name: len(pair.texts) / statistics.median(values) for name, values in seconds.items()}
        print(turn + 1, {name: round(rate, 1) for name, rate in rates.items()}, flush=True)
    return rates


def cache_seconds(pair: Pair) -> float:
    """Seconds the teacher's signals of all texts take."""
    started = time.perf_counter()
    predict(pair.teacher_model, pair.encoded, CPU, FLOAT)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="turns of each arm")
    parser.add_argument("--texts", type=int, default=50 * BATCH, help="texts of a turn: one window of sorting")
    parser.add_argument("--report", action="store_true", help="write benchmarks/reports/<date>-throughput.md")
    options = parser.parse_args()
    keep_freed_memory()
    pair = load_pair(options.texts)
    with tempfile.TemporaryDirectory() as temporary:
        rates = measure(pair, options.rounds, Path(temporary))
    reference = rates["HF Trainer, KD, live teacher"]
    rows = [[name, f"{rate:.1f}", f"{rate / reference:.2f}"] for name, rate in rates.items()]
    met = all(rates[name] / reference >= TARGET for name in ("KD, by length", "RAPID, by length"))
    sections = [
        f"MiniLM pair, SST-2 texts, K = 256, B = {BATCH}, float32; {options.rounds} turns of {options.texts} examples "
        "an arm, interleaved, medians.",
        harness.table(["arm", "examples a second", "in the Trainer's"], rows),
        f"Target: KD and RAPID by length at least {TARGET:g} times the Trainer: {'met' if met else '**missed**'}.",
    ]
    print("\n\n".join(sections))
    if options.report:
        print(harness.write_report("throughput", "Examples a second", sections))


if __name__ == "__main__":
    main()
