"""``python -m bench``: run benchmarks, keep their results, write docs/performance.md."""

from collections.abc import Callable
from typing import Final

import click

from bench import api, dispatcher, growth, ingestion, latency, report
from bench.harness import Options, Section, facts, save, say

BENCHMARKS: Final[dict[str, Callable[[Options], Section]]] = {
    "dispatcher": dispatcher.run,
    "growth": growth.run,
    "ingestion": ingestion.run,
    "latency": latency.run,
    "api": api.run,
}


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--quick", is_flag=True, help="Small jobs, to see that it works; not documented.")
@click.option("--repeats", type=click.IntRange(1, 99), help="How often each is measured.")
def main(names: tuple[str, ...], *, quick: bool, repeats: int | None) -> None:
    """Run the benchmarks named, or all: dispatcher, growth, ingestion, latency, api.

    Results go to .bench/results.json and docs/performance.md; with --quick nowhere.
    """
    for name in names:
        if name not in BENCHMARKS:
            raise click.BadParameter(f"{name}: give some of {', '.join(BENCHMARKS)}")
    options = Options(quick, repeats or (1 if quick else 5))
    circumstances = facts()
    for name in names or BENCHMARKS:
        section = BENCHMARKS[name](options)
        say("\n" + report.of_section(section))
        if not quick:
            save(section, options, circumstances)
            report.write_page()


if __name__ == "__main__":
    main(prog_name="python -m bench")
