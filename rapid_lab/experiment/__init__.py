"""One run, composed: from settings to a tracked, reproducible student. Only here is the report split read."""
