"""Sweeps: Optuna over the settings of the one run. Only this folder imports optuna, and only `ray_engine` imports ray.

From a question to an answer: `space` (what may vary), `options` (what the user asked), `plan` (every trial and its
settings, `cost` of them), `storage` and `study` (what is done, by whom, under which lock), `trial` (one trial: paired
seeds averaged), `worker` (trials until none is left), `driver` (workers, progress, the end).
"""
