"""A model served over HTTP by replicas on all nodes: `serve.run` starts them."""

import socket

from ray import serve
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from starlette.requests import Request


@serve.deployment(
    num_replicas=2,
    max_replicas_per_node=1,
    ray_actor_options={"num_cpus": 1},
    health_check_period_s=2,
    logging_config={"enable_access_log": False},
)
class Digits:
    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        self.model = LogisticRegression(max_iter=300).fit(images / 16, labels)

    async def __call__(self, request: Request) -> dict[str, object]:
        """The digit on an image of 8x8 pixels from 0 to 16, and the node that answers."""
        pixels = await request.json()
        (digit,) = self.model.predict([[value / 16 for value in pixels]])
        return {"digit": int(digit), "node": socket.gethostname()}


if __name__ == "__main__":
    serve.run(Digits.bind(), name="digits", blocking=True)  # until the run is canceled
