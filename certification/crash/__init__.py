"""The crash campaign: ``python -m certification crash --minutes M --seed S``.

Workers in processes of their own run random activities against a simulated provider in another process,
while they are killed, their database is stopped, filled or slowed down, and the clock steps. After each round
an auditor that shares no code with the ledger compares the tables with what the provider, the tools and the
workers wrote down themselves. At the end everything is reconciled, and every balance must be exact.

The seed decides what is asked, what the provider answers, what goes wrong and when it is meant to. *When* a
signal reaches a process, and so how many rounds fit into the time, differs from run to run.
"""

from __future__ import annotations
