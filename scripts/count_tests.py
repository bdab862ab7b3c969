"""Counts test cases in ctest's logs (googletest and pytest cases; any other program is one case) for scripts/test, and
says again what failed, at the end, where it is looked for.

    count_tests.py [--skips-only-for FILE] NAME=LOG...

FILE has a regular expression a line, and comments: with it, a case that was skipped for a reason that none of them
matches is listed, and the exit status is 1."""

import argparse
import re
import sys

# The last match counts: a test may start programs that print such lines of their own.
GTEST_RAN = re.compile(r"^\[==========\] (\d+) tests? from .* ran\.", re.M)
GTEST_COUNTS = {word: re.compile(rf"^\[  {word} \] (\d+) tests?", re.M) for word in ("PASSED ", "FAILED ", "SKIPPED")}
GTEST_SKIP = re.compile(r"^\S+:\d+: Skipped\n(.*)$", re.M)
GTEST_FAILED_CASE = re.compile(r"^\[ RUN      \] (\S+)\n(?:(?!\[ RUN      \]).*\n)*?\[  FAILED  \] \1.*\n", re.M)
PYTEST_SKIP = re.compile(r"^SKIPPED \[(\d+)\] [^:]+:(?:\d+:)? (.*)$", re.M)  # with -rs
PYTEST_ENDS = re.compile(r"^=* ?((?:\d+ \w+(?:, )?)+) in [\d.]+s", re.M)
SANITIZER_REPORT = re.compile(r"^.*(?:ERROR|WARNING): \w+Sanitizer", re.M)
MOST_LINES = 100
LAST_LINES = 20


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


def reasons_of(output, skipped):
    """Why one ctest entry skipped so many cases: a reason for each."""
    reasons = GTEST_SKIP.findall(output)
    for times, reason in PYTEST_SKIP.findall(output):
        reasons += int(times) * [reason]
    return reasons + (skipped - len(reasons)) * ["it did not say why"]


def what_failed(output):
    """What one ctest entry that failed said of it: its failed cases, what a sanitizer found, and its last words."""
    cases = "".join(match.group(0) for match in GTEST_FAILED_CASE.finditer(output)).splitlines()
    found = SANITIZER_REPORT.search(output)
    report = output[found.start() :].splitlines() if found else []
    return "\n".join(cases[:MOST_LINES] + report[:MOST_LINES] + output.splitlines()[-LAST_LINES:])


def count_log(path):
    """The totals, why cases were skipped (pairs of a ctest entry's name and a reason), and the same of what failed."""
    totals, skips, failures = [0, 0, 0], [], []
    with open(path, errors="replace") as log:
        entries = re.split(r"^\d+/\d+ Testing: ", log.read(), flags=re.M)[1:]
    for entry in entries:
        succeeded = bool(re.search(r"^Test Pass(ed\.| Reason:)$", entry, re.M))  # a reason: it skipped itself
        counts = count_program(entry, succeeded)
        totals = [total + count for total, count in zip(totals, counts)]
        skips += [(entry.split()[0], reason) for reason in reasons_of(entry, counts[2])]
        if not succeeded:
            failures.append((entry.split()[0], what_failed(entry)))
    return totals, skips, failures


def read_allowed(path):
    with open(path) as lines:
        return [re.compile(line.strip()) for line in lines if line.strip() and not line.startswith("#")]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--skips-only-for", metavar="FILE")
    parser.add_argument("logs", nargs="+", metavar="NAME=LOG")
    arguments = parser.parse_args()
    totals, refused, failures = [0, 0, 0], [], []
    allowed = read_allowed(arguments.skips_only_for) if arguments.skips_only_for else [re.compile("")]
    for argument in arguments.logs:
        name, _, path = argument.partition("=")
        try:
            counts, skips, failed = count_log(path)
        except FileNotFoundError:
            counts, skips, failed = [0, 1, 0], [], []
        print(f"{name:<20} {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
        totals = [total + count for total, count in zip(totals, counts)]
        refused += [f"{name} {entry}: {why}" for entry, why in skips if not any(reason.search(why) for reason in allowed)]
        failures += [f"==== {name} {entry} failed:\n{why}" for entry, why in failed]
    for failure in failures:
        print(failure)
    print(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    for line in sorted(set(refused)):
        print(f"skipped, and may not be: {line}", file=sys.stderr)
    return 1 if refused else 0


sys.exit(main())
