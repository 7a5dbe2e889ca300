"""The commands of `ostinato bench`: suites are sealed, run, judged and refreshed; cli registers them."""
