"""What a check of `ppas doctor` finds."""

from typing import NamedTuple

OK, WARNING, PROBLEM, SKIPPED = "ok", "warning", "problem", "skipped"


class Finding(NamedTuple):
    """The outcome of one check: OK, WARNING, PROBLEM or SKIPPED, and what to do about it."""

    level: str
    check: str
    message: str

    def __str__(self) -> str:
        return f"{self.level:<8} {self.check:<15} {self.message}"
