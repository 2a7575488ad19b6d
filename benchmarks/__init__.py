"""How fast, against whom: ``make bench``. Never part of the test run, and nothing here is a timed assertion."""
