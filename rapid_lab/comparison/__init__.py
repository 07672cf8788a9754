"""From the tracking store to tables, statistics, figures and a report; imports no torch."""
