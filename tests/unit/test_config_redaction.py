"""Secrets in properties, addresses and command lines are hidden, and nothing else."""

from __future__ import annotations

import time

import pytest

from mirrortest.config.redaction import (
    HIDDEN,
    command_without_secrets,
    without_secrets,
)


@pytest.mark.parametrize(
    "key",
    [
        "ssl.key.password", "sasl.jaas.config", "ssl.keystore.key", "basic.auth.user.info",
        "listener.name.x.scram-sha-256.sasl.jaas.config", "aws.secret.access", "A.ssl.keystore.Key",
        "sasl.login.token", "api_key", "fs.azure.sas.container.account", "confluent.license",
        "AWS_CREDS", "db_pw",
    ],
)  # fmt: skip
def test_values_of_secret_properties_are_hidden(key: str) -> None:
    """The key stays: that it was set is part of the configuration."""
    assert without_secrets({key: "geheim"}) == {key: HIDDEN}


def test_other_properties_stay_but_for_passwords_in_addresses() -> None:
    """Even if their names resemble a secret's."""
    given = {
        "key.converter": "x.ByteArray",
        "confluent.license.topic": "x",
        "ssl.signature.algorithm": "x",
        "design": "x",
        "spw": "x",
        "log.dirs": "/data",
        "url": "http://ann:geheim@proxy:3128/x",
    }
    found = without_secrets(given)
    assert found == {**given, "url": f"http://{HIDDEN}@proxy:3128/x"}
    assert "geheim" not in str(found)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("http://ann:ge/heim@proxy:3128/x", f"http://{HIDDEN}@proxy:3128/x"),
        ("http://ann:ge@heim@proxy/x", f"http://{HIDDEN}@proxy/x"),
        ("http://geheim@proxy", f"http://{HIDDEN}@proxy"),
        ("a://h:1/x,b://ann:ge/heim@i:2, c://j:3", f"a://h:1/x,b://{HIDDEN}@i:2, c://j:3"),
        ("a://ann:ge,heim@h:1,b://bob:geheim@i", f"a://{HIDDEN}@h:1,b://{HIDDEN}@i"),
        ("a://ann:b://geheim@h", f"a://{HIDDEN}@h"),
        ("INTERNAL://:9092,EXTERNAL://h:9093", "INTERNAL://:9092,EXTERNAL://h:9093"),
        ("1@h:9093,2@i:9093", "1@h:9093,2@i:9093"),
    ],
)
def test_credentials_in_an_address_are_hidden_and_the_rest_of_a_list_stays(
    given: str, shown: str
) -> None:
    """A password may contain a slash, an @ or a comma."""
    assert without_secrets({"url": given}) == {"url": shown}


def test_a_command_line_keeps_its_options_and_loses_its_secrets() -> None:
    """A secret may be part of the option's word, or the next word."""
    words = ["java", "-Xmx1g", "-Dssl.password=a", "--password", "b", "--topic", "c", "kafka.Kafka"]
    assert command_without_secrets(words) == [
        *("java", "-Xmx1g", f"-Dssl.password={HIDDEN}", "--password", HIDDEN, "--topic", "c"),
        "kafka.Kafka",
    ]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("--command-property=sasl.password=geheim", "--command-property=sasl.password="),
        ("--producer-property=ssl.keystore.key=geheim", "--producer-property=ssl.keystore.key="),
        ("--set=a=1,sasl.password=geheim", "--set=a=1,sasl.password="),
        (
            '--command-property=sasl.jaas.config=x required username="u" password="geheim";',
            "--command-property=sasl.jaas.config=",
        ),
        ('--set=login=x username="u" password="geheim";', '--set=login=x username="u" password='),
        ("SCRAM-SHA-256=[iterations=8192,password=geheim]",
         "SCRAM-SHA-256=[iterations=8192,password="),
        ("SASL_PASSWORD=geheim", "SASL_PASSWORD="),
        ("exec env A=1 KAFKA_PASSWORD='geheim' kafka", "exec env A=1 KAFKA_PASSWORD="),
        ("kafka --topic a --password geheim", "kafka --topic a --password "),
        ('{"a": 1, "sasl.password":"geheim"}', '{"a": 1, "sasl.password":'),
        ("'ssl.key.password' : 'geheim'", "'ssl.key.password' : "),
        ("-Dx.pwd=geheim", "-Dx.pwd="),
        ("-Dsasl.pass=geheim", "-Dsasl.pass="),
        ("openssl -passin pass:geheim", "openssl -passin "),
        ("-Dhttp.auth=bob:geheim", "-Dhttp.auth="),
        ('{"auth": "bob:geheim"}', '{"auth": '),
        ("http.auth = bob:geheim", "http.auth = "),
        ("curl -u  bob:geheim http://x", "curl -u  "),
        ("curl --proxy-user bob:geheim http://x", "curl --proxy-user "),
        ("Authorization: Basic geheim", "Authorization: "),
        ("Basic geheim", "Basic "),
        ("Endpoint=sb://x;SharedAccessKey=geheim", "Endpoint=sb://x;SharedAccessKey="),
        ("AccountName=a;AccountKey=geheim", "AccountName=a;AccountKey="),
        ("--url=https://x/y?sv=1&sig=geheim", "--url=https://x/y?sv=1&sig="),
        ("https://s3/x?X-Amz-Signature=geheim&a=1", "https://s3/x?X-Amz-Signature="),
        ("--pw=geheim", "--pw="),
        ("x --creds geheim", "x --creds "),
        ("x --license-key geheim", "x --license-key "),
    ],
)  # fmt: skip
def test_a_secret_within_a_word_of_a_command_line_is_hidden(given: str, shown: str) -> None:
    """Once, a property as an option's value, as in scenarios, was shown with its password."""
    assert command_without_secrets([given]) == [f"{shown}{HIDDEN}"]
    assert command_without_secrets(["--set", given]) == ["--set", f"{shown}{HIDDEN}"]
    assert "geheim" not in str(without_secrets({"java.options": given}))


@pytest.mark.parametrize(
    "word",
    [
        "--command-config=/run/secrets/client.properties", "--topics=tokens,passwords",
        "-Djava.security.auth=a=b", "/opt/jackson-token.jar:/opt/private/x.jar",
        "key.converter=a.B c", "python -u server.py", "sudo -u kafka -E java",
        "-Dssl.client.auth=required",
    ],
)  # fmt: skip
def test_a_word_without_the_value_of_a_secret_stays(word: str) -> None:
    """A name like a secret's hides nothing by itself: files and topics may have such names."""
    assert command_without_secrets([word]) == [word]


@pytest.mark.parametrize(
    ("option", "value", "shown"),
    [
        ("-u", "bob:geheim", HIDDEN),
        ("--user", "bob:geheim", HIDDEN),
        ("-u", "server.py", "server.py"),
        ("-p", "geheim", HIDDEN),
        ("-p", "9092", HIDDEN),
        ("--account-key", "geheim", HIDDEN),
    ],
)
def test_a_word_after_a_short_option_is_hidden_if_it_can_be_a_secret(
    option: str, value: str, shown: str
) -> None:
    """After -u, a password follows a colon; -p may come before a password of digits."""
    assert command_without_secrets(["x", option, value]) == ["x", option, shown]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("curl -s -uann:geheim http://x", "curl -s -u"),
        ("/usr/bin/mysql -h db -pgeheim", "/usr/bin/mysql -h db -p"),
        ("mysqldump -pgeheim", "mysqldump -p"),
        ("curl -s -u ann:geheim http://x", "curl -s -u "),
        ("redis-cli -h db -a geheim", "redis-cli -h db -a "),
        ("redis-cli -ageheim", "redis-cli -a"),
    ],
)
def test_a_password_that_follows_a_short_option_of_a_known_program_is_hidden(
    given: str, shown: str
) -> None:
    """As words, and in a shell's command, of which nothing that follows is shown."""
    words = command_without_secrets(given.split())
    assert " ".join(words).startswith(f"{shown}{HIDDEN}")
    assert "geheim" not in str(words)
    assert command_without_secrets(["sh", "-c", given]) == ["sh", "-c", f"{shown}{HIDDEN}"]


@pytest.mark.parametrize("word", ["mysql", "mysql-", "curl ", "redis-cli -b"])
def test_a_long_command_line_is_searched_within_moments(word: str) -> None:
    """The time grows with its length, not with the square of it."""
    began = time.process_time()
    command_without_secrets([word * 20_000, *[word] * 20_000])
    assert time.process_time() - began < 5


def test_the_password_of_sshpass_is_hidden() -> None:
    words = ["sshpass", "-pgeheim", "ssh", "x"]
    assert command_without_secrets(words) == ["sshpass", f"-p{HIDDEN}", "ssh", "x"]
    assert "geheim" not in str(command_without_secrets(["sh", "-c", " ".join(words)]))


@pytest.mark.parametrize(
    "command",
    [
        "java -port 9092 -pidfile /run/x -p9092 x",
        "ls -a dir",
        "python -u server.py",
        "java -cp /opt/mysql-connector.jar:/opt/x.jar -prod x.Main",
        "x -uri:http://h:1 -url=a:b -user=ann",
        "mysql --port 3306 -h db",
        "redis-cli -h db get a",
        "mysql -P 3306",
    ],
)
def test_short_options_of_other_programs_stay(command: str) -> None:
    """They begin like an option with a password."""
    assert command_without_secrets(command.split()) == command.split()


@pytest.mark.parametrize("before", ["", "-Durl=", "--proxy="])
def test_an_address_in_a_command_line_loses_its_credentials(before: str) -> None:
    """Even if these contain `=`, which separates an option from its value."""
    assert command_without_secrets([f"{before}http://ann:ge=heim@proxy:3128"]) == [
        f"{before}http://{HIDDEN}@proxy:3128"
    ]
