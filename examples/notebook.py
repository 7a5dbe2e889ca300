"""The record in a notebook: what the champion's sessions of the last day were worth, and why."""

import time

import ostinato as o

run = o.open()  # the only record below runs/; or o.open("runs/serve"), a file, the URL of a database
lately = time.time() - 24 * 3600
for session in run.sessions(source="live", arm="champion", since=lately):
    reward = run.reward(session)
    parts = {} if reward is None else {part.name: part.value for part in reward.parts}
    print(session.id, session.user, session.ending, parts)

frame = run.rewards(source="live", since=lately).to_pandas()
if len(frame):
    print(f"{len(frame)} rewards, {frame['total'].mean():+.2f} on average")
