"""A real service under attack: ``python -m benchmarks.siege``.

Each case starts a service with small limits, in a memory cgroup where one can be made, attacks it
as somebody outside could, or breaks what it stands on (files, disk, clock). Then the service must
be alive, no worker may have been held more than 5 s past its deadline, and a good request must be
answered with the right pixels. Exits with 1 if a case fails.
"""

from __future__ import annotations

import sys

from benchmarks.options import benchmark_parser
from benchmarks.siege.case import CASES
from benchmarks.siege.cases import load_cases
from benchmarks.siege.run import run_all, table


def main() -> None:
    load_cases()
    parser = benchmark_parser(__doc__)
    parser.add_argument("--only", nargs="+", metavar="CASE", choices=CASES, help="these cases")
    parser.add_argument("--quick", action="store_true", help="the short siege, as CI runs it")
    parser.add_argument("--list", action="store_true", help="list the cases and end")
    options = parser.parse_args()
    cases = [CASES[name] for name in options.only or CASES]
    if options.quick:
        cases = [case for case in cases if case.quick]
    if options.list:
        print("\n".join(f"{case.name}: {case.tried}" for case in cases))
        return
    results = []
    for result in run_all(cases):
        print(f"{result.verdict}  {result.case.name}: {result.outcome}", flush=True)
        results.append(result)
    print(f"\n{table(results)}")
    sys.exit(any(result.verdict == "FAIL" for result in results))


if __name__ == "__main__":
    main()
