"""How help shows options: their groups and metavars, the same in all commands."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

BY_ENVIRONMENT = r" \[env]"
"""Behind the help of an option that the environment can give."""
ENVIRONMENT = (
    r"\[env]: also by an environment variable, MIRRORTEST_ and the option's name: "
    "MIRRORTEST_LOG_DIR for --log-dir."
)

_WIDTH = 78
"""Columns of a help's lines: a terminal's, less the help's margins."""

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
    "DIR": "--output --log-dir --log-spool --directory --again --truth --observations --png",
    "FILE": "--csv --html --junit --report --spec --source-command-config "
    "--destination-command-config --ledger-command-config --command-config",
    "HOST:PORT": "--bootstrap-server --ledger-bootstrap-server",
    "": "--source-bootstrap-server --destination-bootstrap-server",  # no room, see their help
    "ALIAS": "--source-alias --destination-alias",
    "TEXT": "--separator",
    "ADDRESS": "--metrics-address",
    "URL": "--master",
    "SIZE": "--driver-memory --heap",
    "EXPR": "--threshold",
    "REGEX[,...]": "--topics --exclude",
    "OPTION": "--jvm-option",
    "IMAGE": "--kafka-image",
    "mirrormaker2|saboteur": "--mirror",
    "jvm|docker": "--runtime",
    "NUMBER": "--anomalies --lost --messages --consumers --brokers --offset-flush-ms "
    "--metrics-port --lines --partitions --seconds --look-up-limit --jobs --seed --before "
    "--partition",
    "RATE": "--throughput --rate",
}
_METAVAR_OF = {name: metavar for metavar, names in _METAVARS.items() for name in names.split()}


class Verbs(TyperGroup):
    """The commands, with their options laid out.

    An alias is not shown: with it a name would not fit into 80 columns.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        for command in self.commands.values():
            _lay_out(command)

    def get_params(self, ctx: Any) -> list[Any]:
        """See click; typer adds options of its own."""
        return [_without_type(option) for option in super().get_params(ctx)]

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """See click; aliases become the names that they stand for."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and (help_option := command.get_help_option(ctx)):
            _without_type(help_option)
        names = {
            alias: option.opts[0]
            for option in getattr(command, "params", ())
            for alias in aliases_of(option)
        }
        return name, command, [_without_alias(word, names) for word in rest]


def aliases_of(option: Any) -> list[str]:
    """The further names of an option that was laid out."""
    found: list[str] = getattr(option, "aliases", [])
    return found


def _without_alias(word: str, names: dict[str, str]) -> str:
    option, equals, value = word.partition("=")
    return names.get(option, option) + equals + value


def _lay_out(command: Any) -> None:
    if command.help:
        command.help = "\n".join(map(_wrapped, _joined(command.help)))
    command.params.sort(key=_position)
    for option in command.params:
        if option.param_type_name == "option":
            _lay_out_option(option)
            if option.envvar:
                command.epilog = ENVIRONMENT


def _joined(text: str) -> list[str]:
    """Its lines, where those of a paragraph are one: the terminal's width breaks it."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and line[:1].strip() and lines[-1][:1].strip():
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return lines


def _wrapped(line: str) -> str:
    """A long command on several lines, which can be pasted; broken before its options."""
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


def _without_type(option: Any) -> Any:
    if getattr(option, "is_flag", False):
        option.metavar = ""
    return option


def _position(parameter: Any) -> int:
    return _ORDER.index(_GROUP_OF.get(parameter.opts[0], "Options"))


def _lay_out_option(option: Any) -> None:
    name = option.opts[0]
    option.rich_help_panel = _GROUP_OF.get(name)
    option.aliases = [each for each in option.opts[1:] if each.startswith("--")]
    option.opts = [each for each in option.opts if each not in option.aliases]
    if option.metavar is None and not _without_type(option).is_flag:
        option.metavar = _METAVAR_OF.get(name)
    if option.envvar:
        option.help = f"{option.help}{BY_ENVIRONMENT}"
        option.show_envvar = False
