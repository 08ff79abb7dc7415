"""The layout of help: paragraphs, examples, and options in groups, the same in all commands.

The parser writes it as text: rich's panels are narrower, and take half of the time.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable

    from typer.models import CommandFunctionType

BY_ENVIRONMENT = " [env]"
"""Suffix of the help of an option that an environment variable can set."""
ENVIRONMENT = (
    "[env]: also by an environment variable, MIRRORTEST_ and the option's name: "
    "MIRRORTEST_LOG_DIR for --log-dir."
)

_WIDTH = 78
"""Columns of a line of help; the parser has the same."""
_CODE = 4
"""Least indentation, in columns, of a line that is a command or part of a file."""
_NAMES = 34
"""Columns for the options' names; a longer name gets its own line."""

_GROUPS = {
    "Connection": (
        "--bootstrap-server --source-bootstrap-server --destination-bootstrap-server "
        "--ledger-bootstrap-server --command-config --source-command-config "
        "--destination-command-config --ledger-command-config --command-property"
    ),
    "Mirror": "--source-alias --separator --topic-map",
    "Workload": (
        "--workload --print-workload --throughput --seed --start-at --message-size "
        "--payload-compressibility --payload-file --payload-delimiter "
        "--batch-messages --form --use-message-headers --warmup-records "
        "--destination-partitions --only-partition --create-topics --partitions "
        "--replication-factor --retention --topic-config --acks --compression --linger-ms"
    ),
    "Judgement": (
        "--threshold --exactly-once --deadline --settle-time --expect-producers "
        "--expect-partition --include-backlog --from-latest"
    ),
    "Output": (
        "--log-dir --log-detail --report --json --csv --format --show-detailed-stats --hide-header "
        "--details --output --html --junit --png --observations "
        "--open --progress --reporting-interval --status-file --metrics-port"
    ),
    "Advanced": (
        "--ledger-topic --state-topic --state-interval --drain-timeout --log-spool "
        "--metrics-address --portable --look-up-limit --master --driver-memory"
    ),
}
_GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names.split()}
_ORDER = ["Options", *_GROUPS]

_METAVARS = {
    "RUN": "--run",
    "NAME": "--id --name",
    "DIR": "--output --log-dir --log-spool --directory --again --truth --png",
    "FILE": "--html --junit --spec --source-command-config "
    "--destination-command-config --ledger-command-config --command-config",
    "HOST:PORT": "--bootstrap-server --ledger-bootstrap-server --source-bootstrap-server "
    "--destination-bootstrap-server",
    "ALIAS": "--source-alias --destination-alias",
    "TEXT": "--separator",
    "ADDRESS": "--metrics-address",
    "URL": "--master",
    "SIZE": "--driver-memory --heap",
    "EXPR": "--threshold",
    "REGEX[,...]": "--topics --exclude",
    "OPTION": "--jvm-option",
    "IMAGE": "--kafka-image",
    "NUMBER": "--anomalies --lost --messages --consumers --brokers --offset-flush-ms "
    "--metrics-port --lines --partitions --look-up-limit --jobs --seed --before "
    "--partition",
    "RATE": "--throughput --rate",
}
_METAVAR_OF = {name: metavar for metavar, names in _METAVARS.items() for name in names.split()}


class _TextHelp:
    """Help as text, for a command or for a group of commands."""

    help: str | None
    epilog: str | None
    get_params: Any

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # the parser's
        """See click; examples keep their lines."""
        _write(formatter, self.help)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # the parser's
        """See click."""
        _write(formatter, self.epilog)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """See click; arguments have the same names as in the list below the usage."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return [
            "[OPTIONS]",
            *(_name(each) if each.required else f"[{_name(each)}]" for each in arguments),
            *(["COMMAND", "..."] if isinstance(self, Verbs) else []),
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """See click; in groups."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                if parameter.param_type_name == "argument":
                    groups["Arguments"].append((_name(parameter), record[1]))
                else:
                    groups.setdefault(group_of(parameter), []).append(record)
        for group, records in groups.items():
            if records:
                with formatter.section(typer.style(group, bold=True)):
                    formatter.write_dl(records, col_max=_NAMES)


class Verb(_TextHelp, TyperCommand):
    """A command whose help is laid out here.

    Aliases are not shown: they are the names that Kafka's tools use, for users who type those.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.help = "\n".join(map(_wrapped, _joined(self.help or "")))
        self.params.sort(key=lambda parameter: _ORDER.index(group_of(parameter)))
        for option in self.params:
            if option.param_type_name == "option":
                _lay_out(option)
        if any(getattr(option, "envvar", None) for option in self.params):
            self.epilog = ENVIRONMENT


class Verbs(_TextHelp, TyperGroup):
    """A group of commands whose help is laid out here."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """See click; the commands come first."""
        with formatter.section(typer.style("Commands", bold=True)):
            # The first paragraph of each command's help.
            texts = ((name, command.help or "") for name, command in self.commands.items())
            formatter.write_dl([(name, text.partition("\n\n")[0]) for name, text in texts])
        super().format_options(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """See click; aliases are replaced by the options' names."""
        name, command, rest = super().resolve_command(ctx, args)
        names = {
            alias: option.opts[0]
            for option in getattr(command, "params", ())
            for alias in aliases_of(option)
        }
        return name, command, [_without_alias(word, names) for word in rest]


class Program(typer.Typer):
    """A typer application whose help is laid out here."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(cls=Verbs, rich_markup_mode=None, **keywords)

    def command(  # type: ignore[override]  # no other parameter is used
        self,
        name: str | None = None,
        *,
        help: str | None = None,  # noqa: A002  # typer's name
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """See typer."""
        return super().command(name, cls=Verb, help=help)


def aliases_of(option: Any) -> list[str]:
    """The aliases of an option that was laid out."""
    found: list[str] = getattr(option, "aliases", [])
    return found


def _without_alias(word: str, names: dict[str, str]) -> str:
    option, equals, value = word.partition("=")
    return names.get(option, option) + equals + value


def _write(formatter: Any, text: str | None) -> None:
    if text:
        formatter.write_paragraph()
        formatter.write("\n".join(map(_filled, text.splitlines())) + "\n")


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _joined(text: str) -> list[str]:
    """Split text into lines, with each paragraph as one line: `_filled` wraps it later."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and line[:1].strip() and lines[-1][:1].strip():
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return lines


def _wrapped(line: str) -> str:
    """Break a long command before its options, into lines that can be pasted together."""
    if not line.startswith("    mirrortest ") or len(line) <= _WIDTH:
        return line
    first, *options = line.split(" --")
    lines = [first]
    for option in options:
        if len(lines[-1]) + len(option) + len(" -- \\") > _WIDTH:
            lines.append(f"      --{option}")
        else:
            lines[-1] += f" --{option}"
    return " \\\n".join(lines)


def _filled(line: str) -> str:
    """Wrap text to the width of help; leave code as it is."""
    text = line.lstrip()
    margin = line[: len(line) - len(text)]
    if len(margin) >= _CODE:
        return line
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def group_of(parameter: Any) -> str:
    """The group in which help lists an option."""
    return _GROUP_OF.get(parameter.opts[0], "Options")


def _lay_out(option: Any) -> None:
    name = option.opts[0]
    option.aliases = [each for each in option.opts[1:] if each.startswith("--")]
    option.opts = [each for each in option.opts if each not in option.aliases]
    if not option.is_flag:
        option.metavar = option.metavar or _METAVAR_OF.get(name) or _choices(option)
    if option.envvar:
        option.help = f"{option.help}{BY_ENVIRONMENT}"
        option.show_envvar = False


def _choices(option: Any) -> str | None:
    choices = option.type_descriptor.choices
    return "|".join(str(getattr(each, "value", each)) for each in choices) if choices else None
