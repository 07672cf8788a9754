"""RAPID lab: experiment-tracked sweeps for reliability-aware relational distillation."""

__version__ = "0.1.0"
