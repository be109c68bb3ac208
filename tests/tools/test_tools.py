"""The tools are run by hand, some of them on machines that this one is not: what the product renames must reach them."""

import importlib
import pkgutil

import tools


def test_every_tool_can_be_imported() -> None:
    broken = {}
    for module in pkgutil.walk_packages(tools.__path__, "tools."):
        if module.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            broken[module.name] = str(error)
    assert not broken
