"""From a request's JSON to the JSON of its answer. Whatever goes wrong becomes a problem in one sentence."""

from __future__ import annotations

from typing import Any

from trainwiz.core.estimate.trace.problems import CannotTrace
from trainwiz.core.language import tr
from trainwiz.core.plain import plain_text
from trainwiz.core.tracing.request import TraceRequest
from trainwiz.core.tracing.result import ProblemCode

LONGEST_REASON = 200
NEEDED = ("torch", "transformers", "accelerate", "peft")


def answer(tier: str, values: dict[str, Any], *, forks: bool = False) -> dict[str, Any]:
    """`{"result": ...}` or `{"problem": {"code", "message"}}`. `forks`: this process may fork while it traces."""
    try:
        return {"result": _trace(tier, TraceRequest.from_json(values), forks).to_json()}
    except CannotTrace as error:
        return problem(error.code, error.message)
    except MemoryError:
        return problem("worker_died", tr("the trace needs more memory than this machine has free"))
    except RecursionError:
        return problem("invalid_config", tr("the model config is nested too deeply to be traced"))
    except ModuleNotFoundError as error:
        code: ProblemCode = "worker_missing" if error.name in NEEDED else "unsupported"
        return problem(code, tr("no trace can be made here: {name} is not installed", name=error.name))
    except Exception as error:  # noqa: BLE001 - a model of any kind fails in any way
        reason = plain_text(str(error).strip().partition("\n")[0], LONGEST_REASON) or tr("no reason given")
        said = f"{type(error).__name__}: {reason}"
        return problem("unsupported", tr("this model or setting cannot be traced ({reason})", reason=said))


def problem(code: ProblemCode, message: str) -> dict[str, Any]:
    return {"problem": {"code": code, "message": message}}


def _trace(tier: str, request: TraceRequest, forks: bool) -> Any:
    if tier == "layers":
        from trainwiz.core.estimate.trace.layers import trace_layers

        return trace_layers(request, forks=forks)
    from trainwiz.core.estimate.trace.full import trace_full

    return trace_full(request)
