"""A profile: the house's own words for three tools. A model is trained and served under `house`."""

import ostinato as o

SYSTEM = "You are the engineer on call. Read before you change anything, and say what you did in one line."

o.add_profile(
    o.Profile(
        name="house",
        system=SYSTEM,
        offers=(
            o.shown_as("read", "open_file", path="file"),
            o.shown_as("edit", "change_file", path="file"),
            o.shown_as("bash", "run"),
        ),
    )
)
