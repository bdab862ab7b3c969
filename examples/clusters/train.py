"""The trainer's end of the files in this folder: they say where to publish and which engines there are. Where an optimizer's
steps would be, this one publishes folders, one after the other.

    train.py FOLDER...
"""

import os
import sys

import layercast

publisher = layercast.Publisher(os.environ["LAYERCAST_PUBLISHER"])
engines = layercast.Controller(os.environ["LAYERCAST_ENGINES"].split(","))
for step, policy in enumerate(sys.argv[1:], start=1):
    published = publisher.publish(policy, step=step)
    engines.wait_until_ready()  # one that was started again has the newest version, or waits for it
    engines.reload(published, all_or_none=True)
    for engine, endpoint in enumerate(engines.endpoints):
        [answer] = engines.generate([[3, 10, 4, 10, 11, 10]], max_new=3, engine=engine)
        [(_, _, version)] = answer.spans
        print(f"{endpoint}: {answer.tokens} of {version.lineage}@{version.step}", flush=True)
