"""How often a run saves, evaluates and generates, beside the schedule that the training itself keeps."""

import pytest
from trainwiz.core.config import RunConfig
from trainwiz.core.plan.schedule import Counts, count_events


def counts(steps: int = 100, epochs: float | None = 4.0, **values: object) -> Counts:
    settings = {key.replace("__", "."): value for key, value in values.items()}
    return count_events(RunConfig().with_values(settings, "you"), steps, epochs)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"checkpoint__every_steps": 25}, Counts(4, 4, 0)),
        ({"checkpoint__every_steps": 30}, Counts(4, 4, 0)),
        ({"checkpoint__every_steps": 50, "evaluation__every_steps": 10}, Counts(2, 10, 0)),
        ({"checkpoint__every_steps": 50, "evaluation__every_epoch": True}, Counts(2, 4, 0)),
        (
            {"checkpoint__every_steps": 50, "evaluation__every_epoch": True, "evaluation__every_steps": 20},
            Counts(2, 9, 0),
        ),
        (
            {"checkpoint__every_steps": 20, "evaluation__every_epoch": True, "checkpoint__keep_best": True},
            Counts(5, 9, 0),
        ),
        ({"checkpoint__every_steps": 25, "evaluation__generate": True}, Counts(4, 4, 4)),
        (
            {"checkpoint__every_steps": 25, "evaluation__generate": True, "evaluation__generate_at": "end"},
            Counts(4, 4, 1),
        ),
        (
            {"checkpoint__every_steps": 10, "evaluation__generate": True, "evaluation__generate_at": "epoch"},
            Counts(10, 10, 4),
        ),
        (
            {
                "checkpoint__every_steps": 25,
                "checkpoint__keep_best": True,
                "evaluation__metric": "eval_bleu",
                "evaluation__generate": True,
                "evaluation__generate_at": "end",
            },
            Counts(4, 4, 5),
        ),
    ],
)
def test_counts(values: dict[str, object], expected: Counts) -> None:
    assert counts(**values) == expected


def test_without_known_epochs_there_is_one_at_least() -> None:
    assert counts(epochs=None, checkpoint__every_steps=100, evaluation__every_epoch=True).evaluations == 1
