"""Counts test cases in ctest's logs (googletest and pytest cases; any other program is one case) for scripts/test."""

import re
import sys

# The last match counts: a test may start programs that print such lines of their own.
GTEST_RAN = re.compile(r"^\[==========\] (\d+) tests? from .* ran\.", re.M)
GTEST_COUNTS = {word: re.compile(rf"^\[  {word} \] (\d+) tests?", re.M) for word in ("PASSED ", "FAILED ", "SKIPPED")}
PYTEST_ENDS = re.compile(r"^=* ?((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.M)


def last(pattern, text):
    found = pattern.findall(text)
    return found[-1] if found else None


def count_program(output, succeeded):
    """The (passed, failed, skipped) cases of one ctest entry."""
    passed = failed = skipped = 0
    if last(GTEST_RAN, output):
        passed, failed, skipped = (int(last(GTEST_COUNTS[word], output) or 0) for word in GTEST_COUNTS)
    elif ends := last(PYTEST_ENDS, output):
        counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", ends)}
        passed = counts.get("passed", 0) + counts.get("xfailed", 0)
        failed = sum(counts.get(word, 0) for word in ("failed", "error", "errors", "xpassed"))
        skipped = counts.get("skipped", 0)
    elif succeeded:
        passed = 1
    if not succeeded and not failed:  # it crashed, hung, or a sanitizer stopped it
        failed = 1
    return passed, failed, skipped


def count_log(path):
    totals = [0, 0, 0]
    with open(path, errors="replace") as log:
        entries = re.split(r"^\d+/\d+ Testing: ", log.read(), flags=re.M)[1:]
    for entry in entries:
        succeeded = bool(re.search(r"^Test Pass(ed\.| Reason:)$", entry, re.M))  # a reason: it skipped itself
        for index, number in enumerate(count_program(entry, succeeded)):
            totals[index] += number
    return totals


def main():
    totals = [0, 0, 0]
    for argument in sys.argv[1:]:
        name, _, path = argument.partition("=")
        try:
            counts = count_log(path)
        except FileNotFoundError:
            counts = [0, 1, 0]
        print(f"{name:<20} {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
        totals = [total + count for total, count in zip(totals, counts)]
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")


main()
