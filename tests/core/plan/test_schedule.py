"""How often a run saves, evaluates and generates, beside the schedule that the training itself keeps."""

from trainwiz.core.config import RunConfig
from trainwiz.core.plan.times import Counts, count_events

from tests.each import each


def counts(steps: int = 100, epochs: float | None = 4.0, **values: object) -> Counts:
    settings = {key.replace("__", "."): value for key, value in values.items()}
    return count_events(RunConfig().with_values(settings, "you"), steps, epochs)


SAVED = {"checkpoint__every_steps": 25, "evaluation__generate": True}
BLEU = {"checkpoint__keep_best": True, "evaluation__metric": "eval_bleu", "evaluation__generate_at": "end"}


@each(
    ("values", "expected"),
    [
        ({"checkpoint__every_steps": 30}, Counts(4, 4, 0)),
        ({"checkpoint__every_steps": 50, "evaluation__every_steps": 10}, Counts(2, 10, 0)),
        (SAVED, Counts(4, 4, 4)),
        ({**SAVED, "evaluation__generate_at": "end"}, Counts(4, 4, 1)),
        ({**SAVED, "checkpoint__every_steps": 10, "evaluation__generate_at": "epoch"}, Counts(10, 10, 4)),
        ({**SAVED, **BLEU}, Counts(4, 4, 4)),
    ],
)
def test_counts(values: dict[str, object], expected: Counts) -> None:
    assert counts(**values) == expected


@each(("epochs", "expected"), [(2.5, 3), (0.5, 1), (None, 1)])
def test_an_epoch_that_the_run_does_not_finish_ends_with_it(epochs: float | None, expected: int) -> None:
    assert counts(100, epochs, checkpoint__every_steps=100, evaluation__every_epoch=True).evaluations == expected


@each("every", [None, 7, 20])
@each("saves", [25, 30, 100])
@each("epochs", [4.0, 10.0])
@each("every_epoch", [False, True])
@each("keep_best", [False, True])
def test_the_training_does_what_is_counted(
    every: int | None, saves: int, epochs: float, every_epoch: bool, keep_best: bool
) -> None:
    from trainwiz.core.training.evaluation import EvaluationSchedule
    from transformers import TrainerState

    values = {
        "evaluation__every_steps": every,
        "evaluation__every_epoch": every_epoch,
        "checkpoint__every_steps": saves,
        "checkpoint__keep_best": keep_best,
    }
    config = RunConfig().with_values({key.replace("__", "."): value for key, value in values.items()}, "you")
    schedule = EvaluationSchedule.of(config, with_saves=keep_best)
    states = [TrainerState(global_step=step, max_steps=100, epoch=step * epochs / 100) for step in range(1, 101)]
    done = sum(schedule.due(state, saves=state.global_step % saves == 0) for state in states)
    assert counts(100, epochs, **values).evaluations == done
