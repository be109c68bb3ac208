"""The tokenizer of a text task: the named one, the model's own, or one made from the training rows."""

from __future__ import annotations

from pathlib import Path

from trainwiz.core.catalog.availability import MADE_FROM_THE_DATA
from trainwiz.core.catalog.hub_cache import cached_model_folder, is_offline
from trainwiz.core.catalog.hub_model import TOKENIZER_FILES
from trainwiz.core.catalog.models import resolve_model
from trainwiz.core.config import RunConfig
from trainwiz.core.data.text_rows import TextRows
from trainwiz.core.errors import usage_error
from trainwiz.core.language import tr
from trainwiz.core.run.folder import RunFolder
from trainwiz.core.telemetry.paths import at_home
from trainwiz.core.training.languages import set_languages
from trainwiz.core.training.tokenizer_training import trained_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase


def build_tokenizer(config: RunConfig, folder: Path, rows: TextRows) -> PreTrainedTokenizerBase:
    """The tokenizer of a causal-lm or seq2seq run; relative paths are from `folder`, the run folder.

    `model.tokenizer` where it is named; else the model's own where its files are here; else, for a
    model from scratch, one made from `rows` and kept in RUN/tokenizer, from where a resumed run
    loads it. It always has a padding and an end token. Raises UsageError.
    """
    made = RunFolder(folder).tokenizer
    choice = config.model.tokenizer
    if choice not in (None, MADE_FROM_THE_DATA):
        return _ready(_load(_named(str(choice), folder), config, "model.tokenizer"), config)
    has_made = (made / "tokenizer.json").is_file()
    own = None if choice == MADE_FROM_THE_DATA or has_made else _own(config, folder)
    if own is not None:
        return _ready(_load(own, config, "model.name"), config)
    kind = {**(config.model.architecture or {}), **config.model.architecture_overrides}.get("model_type")
    trained = trained_tokenizer(
        made,
        rows,
        _vocabulary(config),
        ends_texts=config.task == "seq2seq",
        model_type=None if kind is None else str(kind),
    )
    return _ready(trained, config)


def _named(name: str, folder: Path) -> str:
    path = folder / at_home(Path(name))
    if path.is_dir():
        return str(path)
    if path.is_file():
        return str(path.parent)
    cached = cached_model_folder(name)
    return name if cached is None else str(cached)


def _own(config: RunConfig, folder: Path) -> str | None:
    """Folder or hub id of the model's own tokenizer; None for a model from scratch that has none here."""
    path = folder / at_home(Path(config.model.name))
    if path.exists():
        beside = path if path.is_dir() else path.parent
        if _has_tokenizer(beside):
            return str(beside)
    spec, _ = resolve_model(config.model)
    names = [] if spec is None else [name for name in (spec.tokenizer, spec.hub_id) if name is not None]
    for name in names:
        here = folder / at_home(Path(name))
        cached = here if here.is_dir() else cached_model_folder(name)
        if cached is not None and _has_tokenizer(cached):
            return str(cached)
    if config.model.init != "pretrained":
        return None
    return names[0] if names else str(path if path.is_dir() else path.parent) if path.exists() else config.model.name


def _has_tokenizer(folder: Path) -> bool:
    return any((folder / name).is_file() for name in TOKENIZER_FILES)


def _load(name: str, config: RunConfig, key: str) -> PreTrainedTokenizerBase:
    offline = is_offline()
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            name, local_files_only=offline, trust_remote_code=config.model.trust_remote_code
        )
    except ImportError as error:
        needs = str(error).strip().split(" but it was not found")[0].splitlines()[0].rstrip(".")
        raise usage_error(
            "missing_package",
            key,
            tr(
                "the tokenizer of {name} cannot be loaded: {reason}; install it with pip (pip install sentencepiece for "
                "opus-mt), or name another tokenizer with model.tokenizer.",
                name=name,
                reason=needs,
            ),
        ) from error
    # Tokenizer files are read by many libraries, each with errors of its own.
    except Exception as error:
        detail = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise usage_error(
            "missing_tokenizer",
            key,
            tr(
                "the tokenizer of {name} cannot be loaded: {reason}; name one that is here with model.tokenizer "
                "(a folder, a hub id, or `train` to make one for a model from scratch).",
                name=name,
                reason=detail,
            ),
        ) from error
    assert isinstance(tokenizer, PreTrainedTokenizerBase)
    return tokenizer


def _ready(tokenizer: PreTrainedTokenizerBase, config: RunConfig) -> PreTrainedTokenizerBase:
    """With an end token, a padding token and the languages of the run."""
    name = tokenizer.name_or_path
    if tokenizer.eos_token_id is None:
        raise usage_error(
            "no_end_token",
            "model.tokenizer",
            tr(
                "the tokenizer of {name} has no end-of-text token, so the model cannot learn where a text ends; choose "
                "another with model.tokenizer.",
                name=name,
            ),
        )
    if tokenizer.pad_token_id is None:
        # Padding is hidden by the attention mask and has no label: any number does.
        tokenizer.pad_token = tokenizer.eos_token
    set_languages(tokenizer, config)
    return tokenizer


def _vocabulary(config: RunConfig) -> int:
    values = {**(config.model.architecture or {}), **config.model.architecture_overrides}
    size = values.get("vocab_size")
    if not isinstance(size, int):
        raise usage_error(
            "missing_model", "model.architecture", tr("run.yaml holds no model.architecture; plan the run again.")
        )
    return size
