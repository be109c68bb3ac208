"""Words of shell scripts: the same as bash makes of them, where a shell could know them."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest
from trainwiz.core.importing.command_line import Script

from tests.each import each

SCRIPTS = [
    "show a b  c", "show 'a b' \"c d\" e\\ f ''", "show a\\\n  b \\\n c", "show a # b\nshow c#d",
    "X=1; show $X ${X}0 '$X' \"$X\"", "A='--lr 1e-4  --x 2'\nshow $A \"$A\" z",
    'show ${NOT_SET_HERE:-x y} "${NOT_SET_HERE:-x y}" ${NOT_SET_HERE-7}', 'E=\nshow a $E b "$E" c',
    "show a >/dev/null; show b 2>&1 | cat; show c &> /dev/null", "show x && show y || show z",
    "export Q=5 R=6\nshow $Q$R", "show a --x=\"1 2\"",
    "if true; then show yes; fi\nfor i in 1; do show loop; done", "{ show in; }\n( show sub )",
    'show "a\\"b\\$c" \'d"e\'', "A=1 B=2 show c", 'P="--nodes 2 \\\n --gpus 4"\nshow $P',
]  # fmt: skip


@each("script", SCRIPTS)
def test_words_are_those_of_bash(script: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here to compare with")
    define = "exec 3>&1; show() { printf '%s\\0' \"$@\" >&3; printf '\\n\\0' >&3; }\n"
    run = subprocess.run([bash, "-c", define + script], capture_output=True, timeout=600, check=False)
    expected = [line.split("\0")[:-1] for line in run.stdout.decode().split("\n\0") if line]
    found = [
        [word.text for word in command.words[1:]]
        for command in Script(script).commands
        if command.words[0].text == "show" and not (" || show z" in script and command.words[1].text == "z")
    ]
    assert found == expected
    assert all(word.known for command in Script(script).commands for word in command.words)


def words(script: str) -> list[tuple[str, bool]]:
    return [(word.text, word.known) for word in Script(script).commands[-1].words]


def test_what_only_a_shell_could_know_stays_as_it_is_written() -> None:
    unknown = ["$RANK", "$(nproc)", "`date`", "<MODEL>", "c_{a,b}.yaml", "$@", "x$Y"]
    assert words('run $RANK $(nproc) `date` <MODEL> c_{a,b}.yaml "$@" x$Y') == [
        ("run", True), *((word, False) for word in unknown)
    ]  # fmt: skip
    # The known part of a variable is split; one that branches set differently is not known.
    assert words('ARGS="--n $(nproc) --m 2"\nrun $ARGS') == [
        ("run", True), ("--n", True), ("$(nproc)", False), ("--m", True), ("2", True)
    ]  # fmt: skip
    assert words("if x; then N=1; else N=2; fi\nrun $N") == [("run", True), ("$N", False)]
    assert words("if x; then N=1; else N=1; fi\nrun $N") == [("run", True), ("1", True)]


def test_environment_and_lines_are_those_of_the_command() -> None:
    commands = Script("export A=1\nB=2\nC=3 run x").commands
    assert {name: word.text for name, word in commands[-1].environment.items()} == {"A": "1", "C": "3"}
    assert [word.line for word in Script("# hi\n\nrun a \\\n  b\n").commands[0].words] == [3, 3, 4]


def test_half_a_command_is_noticed() -> None:
    unclosed = {script: Script(script).cut_off for script in ("run 'a", '\nrun "a\nb', "run a \\")}
    assert unclosed == {"run 'a": 1, '\nrun "a\nb': 2, "run a \\": 1}


HOSTILE = {
    "doubled text": "A=xx\n" + 'A="$A$A"\n' * 80 + "run $A",
    "sums in sums": "run " + "$((" * 50000,
    "brackets": "run " + "(" * 20000,
    "defaults in defaults": "run " + "${A:-" * 500 + "}" * 500, "long word": "run '" + "x" * 300000,
    "half-open variables": "run " + "${a" * 60000, "commas in braces": "run {" + "," * 300000,
    "many words": "run" + " x" * 100000,
}  # fmt: skip


@each("script", HOSTILE.values())
def test_a_hostile_script_costs_little(script: str) -> None:
    start = time.process_time()
    Script(script)
    # 2.7 s on a quiet machine for the longest.
    assert time.process_time() - start < 15
