"""A model goes to the Hugging Face hub in one commit: what is uploaded, checked first; private unless said otherwise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwiz.core.catalog.hub import TOKENIZER_FILES, hub_endpoint, hub_token, is_hub_id, is_offline
from trainwiz.core.catalog.model_config import ADAPTER_FILE
from trainwiz.core.errors import CannotRunError, Finding, usage_error
from trainwiz.core.files import read_small
from trainwiz.core.hardware.install import need
from trainwiz.core.language import mark, tr
from trainwiz.core.model.card import is_generated, is_of_the_hub, model_card
from trainwiz.core.model.found import FoundModel
from trainwiz.core.run.folder import read_json

WEIGHTS = (".safetensors", ".safetensors.index.json")
TOKENIZERS = TOKENIZER_FILES | {
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "target.spm",
    "chat_template.jinja", "chat_template.json",
}  # fmt: skip
NAMES = frozenset({"config.json", "generation_config.json", ADAPTER_FILE, "LICENSE", "NOTICE"})
"""What a model is made of. All else in the folder stays here: states of optimizers, arguments of trainers, checkpoints."""
CARD = "README.md"
REFUSALS = {
    401: mark("The Hub rejected your token. Log in again with: hf auth login"),
    403: mark(
        "Your account or token has no write access there (403). Use a token with write access, or another OWNER."
    ),
}
"""Status of an answer of the hub -> the sentence."""


@dataclass(frozen=True, slots=True)
class Upload:
    """What a push would publish."""

    repo: str
    public: bool
    files: tuple[Path, ...]
    written: dict[str, str]
    """Name -> text of files that are made for the upload."""
    left: tuple[str, ...]
    """Names in the folder that stay here."""

    @property
    def size(self) -> int:
        return sum(
            [path.stat().st_size for path in self.files] + [len(text.encode()) for text in self.written.values()]
        )


def plan_upload(model: FoundModel, repo: str, *, public: bool, base: str | None) -> Upload:
    """`base`: the hub id to name as the base of an adapter. Raises UsageError."""
    if not is_hub_id(repo) or "/" not in repo:
        raise usage_error("bad_repo", "REPO", tr("{repo} is not a repository; use OWNER/NAME.", repo=repo))
    places = dict.fromkeys((model.path, model.tokenizer))
    files = [path for place in places for path in sorted(place.iterdir()) if _is_of(model, path)]
    if not any(path.name.endswith(".safetensors") for path in files):
        message = tr("{path} contains no safetensors weights, the only format that is pushed.", path=model.path)
        raise usage_error("no_model", str(model.path), message)
    written = {}
    if model.kind == "adapter":
        written[ADAPTER_FILE] = _adapter_for_others(model, base)
    written[CARD] = _card(model)
    files = [path for path in files if path.name not in written]
    left = tuple(path.name for path in sorted(model.path.iterdir()) if path not in files and path.name not in written)
    return Upload(repo, public, tuple(files), written, left)


def _is_of(model: FoundModel, path: Path) -> bool:
    """Whether it belongs to the model; of a folder that only lends its tokenizer, that alone."""
    if path.parent != model.path:
        return path.name in TOKENIZERS and not (model.path / path.name).exists()
    return path.is_file() and (path.name in NAMES or path.name in TOKENIZERS or path.name.endswith(WEIGHTS))


def _adapter_for_others(model: FoundModel, base: str | None) -> str:
    """adapter_config.json with a base that others can find. Raises UsageError."""
    values = read_json(model.path / ADAPTER_FILE) or {}
    name = base or str(values.get("base_model_name_or_path") or "")
    if not is_of_the_hub(name):
        message = tr(
            "The adapter names its base model by a folder on this machine, {name}, which others do not have. Specify "
            "the Hub ID of the base model (--base OWNER/NAME), or merge the adapter first: trainwiz model merge.",
            name=name,
        )
        raise usage_error("local_base", "--base", message)
    return json.dumps({**values, "base_model_name_or_path": name}, indent=2, ensure_ascii=False) + "\n"


def _card(model: FoundModel) -> str:
    """The folder's own README where a person wrote it."""
    try:
        own = read_small(model.path / CARD).decode()
    except (OSError, UnicodeDecodeError):
        own = ""
    return own if own and not is_generated(own) else model_card(model)


def check_account() -> str:
    """The user's name on the hub. Raises CannotRunError without network or account; the token is the hub's own."""
    need(("huggingface_hub",))
    if is_offline():
        raise _cannot("offline", tr("HF_HUB_OFFLINE is set, so nothing is pushed; unset it first."))
    if hub_token() is None:
        raise _cannot("not_logged_in", tr("You are not logged in to the Hub. Log in with: hf auth login"))
    return str(_asked(lambda api: api.whoami()).get("name"))


def push(upload: Upload) -> str:
    """One commit: other people see all of it or nothing. Returns its address. Raises CannotRunError."""
    from huggingface_hub import CommitOperationAdd

    operations = [CommitOperationAdd(path.name, str(path)) for path in upload.files]
    operations += [CommitOperationAdd(name, text.encode()) for name, text in upload.written.items()]
    existed = _asked(lambda api: api.repo_exists(upload.repo))
    if not existed:
        # Made private, and opened when all of it is there.
        _asked(lambda api: api.create_repo(upload.repo, private=True, exist_ok=True))
    elif bool(_asked(lambda api: api.model_info(upload.repo)).private) == upload.public:
        have, want = (tr("private"), tr("public")) if upload.public else (tr("public"), tr("private"))
        message = tr(
            "{repo} exists and is {have}, but you requested {want}. Change it on its page, or use another repository.",
            repo=upload.repo, have=have, want=want,
        )  # fmt: skip
        raise _cannot("other_visibility", message)
    commit = _asked(lambda api: api.create_commit(upload.repo, operations, commit_message="trainwiz"))
    if upload.public and not existed:
        _asked(lambda api: api.update_repo_settings(upload.repo, private=False))
    return str(getattr(commit, "commit_url", "") or f"{hub_endpoint()}/{upload.repo}")


def _asked(call: Any) -> Any:
    """What the hub answers. Raises CannotRunError with one sentence."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return call(HfApi(endpoint=hub_endpoint(), library_name="trainwiz"))
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        reason = str(getattr(error, "server_message", None) or error).splitlines()[0].rstrip(".")
        message = tr("The Hub refused the request ({status}): {reason}.", status=status, reason=reason)
        if status in REFUSALS:
            message = tr(REFUSALS[status])
        raise _cannot("hub_refused", message) from None
    except (HFValidationError, ValueError) as error:
        raise usage_error("bad_repo", "REPO", str(error).splitlines()[0]) from None
    except Exception as error:
        # The hub's client has changed its library for HTTP before.
        if not isinstance(error, OSError) and not type(error).__module__.startswith(("httpx", "httpcore", "requests")):
            raise
        message = tr(
            "The Hub at {address} is unreachable ({reason}); nothing was published.",
            address=hub_endpoint(),
            reason=type(error).__name__,
        )
        raise _cannot("no_network", message) from None


def _cannot(code: str, message: str) -> CannotRunError:
    return CannotRunError(Finding(code, "error", "REPO", message))
