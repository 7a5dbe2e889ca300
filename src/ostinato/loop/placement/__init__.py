"""The hosts of the services of a run: as children of this process, or on the nodes of a Ray cluster.

`services.py` and `resources.py` come in by `base.py` and `choose.py`. Only `ray.py`, `nodes.py` and
`keeper.py` are about Ray.
"""
