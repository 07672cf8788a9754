"""The only training loop, and what it stands on: evaluation, checkpoints, the ledger of steps, resources."""
