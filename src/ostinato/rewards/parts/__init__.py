"""The parts of a reward, one file each: a fact of a session, the exploit that paying for it invites, and the
guard. `practice` and `live` come in. Nothing here may use `monitors`: what is watched is not paid for.
"""
