"""Settings: where they come from, which wins, and refusals that repeat no secret."""

from __future__ import annotations

import base64
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from memoflow.errors import ConfigurationError
from memoflow.settings import MemoflowSettings

SECRET = base64.b64encode(bytes(range(32))).decode()
RING = f"k2:{SECRET},k1:{SECRET}"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory of its own to work in, below which nothing else is looked for."""
    inner = tmp_path / "project" / "src" / "inner"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    return tmp_path / "project"


def write(directory: Path, text: str) -> None:
    """Put a ``pyproject.toml`` into a directory."""
    (directory / "pyproject.toml").write_text(text, encoding="utf-8")


def test_defaults() -> None:
    """Without any configuration the documented defaults hold."""
    settings = MemoflowSettings()
    assert settings.model_dump() == {
        "database_url": None,
        "namespace": "default",
        "output_keys": None,
        "digest_key": None,
        "lease_seconds": 60,
        "output_retention": 30,
        "audit_rules": None,
        "inspection": None,
        "inspection_mode": "shadow",
        "inspection_on_ask": "deny",
    }
    assert settings.key_ring() is None
    assert settings.digester().json({}).startswith("sha256:")


def test_every_setting_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each field has a variable with the prefix, in capitals."""
    for name, value in {
        "DATABASE_URL": "postgresql+psycopg://u:p@h/d",
        "NAMESPACE": "acme",
        "OUTPUT_KEYS": RING,
        "DIGEST_KEY": f"d1:{SECRET}",
        "LEASE_SECONDS": "5",
        "OUTPUT_RETENTION": "7",
    }.items():
        monkeypatch.setenv(f"MEMOFLOW_{name}", value)
    settings = MemoflowSettings()
    assert settings.database_url == "postgresql+psycopg://u:p@h/d"
    assert (settings.namespace, settings.lease_seconds, settings.output_retention) == ("acme", 5, 7)
    ring = settings.key_ring()
    assert ring is not None
    assert ring.key_ids == ("k2", "k1")
    assert settings.digester().json({}).startswith("hmac-sha256:d1:")


def test_arguments_win_over_environment_over_table(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearer source wins, setting by setting."""
    write(project, '[tool.memoflow]\nnamespace = "table"\nlease_seconds = 1\noutput_retention = 1\n')
    monkeypatch.setenv("MEMOFLOW_NAMESPACE", "environment")
    monkeypatch.setenv("MEMOFLOW_LEASE_SECONDS", "2")
    settings = MemoflowSettings(namespace="argument")
    assert (settings.namespace, settings.lease_seconds, settings.output_retention) == ("argument", 2, 1)


def test_the_nearest_table_counts(project: Path) -> None:
    """A ``pyproject.toml`` without the table is passed over; of two tables the nearer one is read alone."""
    write(project / "src" / "inner", '[project]\nname = "x"\n')
    write(project / "src", "[tool.memoflow]\nlease_seconds = 7\n")
    write(project, '[tool.memoflow]\nlease_seconds = 9\nnamespace = "outer"\n')
    settings = MemoflowSettings()
    assert (settings.lease_seconds, settings.namespace) == (7, "default")


def test_empty_variables_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """``MEMOFLOW_X=`` does not mean an empty name, key or number."""
    for name in ("DATABASE_URL", "NAMESPACE", "OUTPUT_KEYS", "DIGEST_KEY", "LEASE_SECONDS"):
        monkeypatch.setenv(f"MEMOFLOW_{name}", "")
    assert MemoflowSettings() == MemoflowSettings(namespace="default", lease_seconds=60)


@pytest.mark.parametrize("word", ["none", "None", " NONE "])
def test_none_keeps_outputs(project: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """Retention without an end can be written in the environment and in TOML."""
    monkeypatch.setenv("MEMOFLOW_OUTPUT_RETENTION", word)
    assert MemoflowSettings().output_retention is None
    monkeypatch.delenv("MEMOFLOW_OUTPUT_RETENTION")
    write(project, f'[tool.memoflow]\noutput_retention = "{word}"\n')
    assert MemoflowSettings().output_retention is None


@pytest.mark.parametrize("word", ["7", "7d", " 7D "])
def test_retention_is_in_days(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    """With or without its unit, as ages are written on the command line."""
    monkeypatch.setenv("MEMOFLOW_OUTPUT_RETENTION", word)
    assert MemoflowSettings().output_retention == 7


@pytest.mark.parametrize("number", [1, 86_400])
def test_limits_are_inclusive(number: int) -> None:
    """The documented limits themselves are allowed."""
    assert MemoflowSettings(lease_seconds=number).lease_seconds == number
    assert MemoflowSettings(output_retention=36_500).output_retention == 36_500


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEASE_SECONDS", "0"),
        ("LEASE_SECONDS", "-5"),
        ("LEASE_SECONDS", "86401"),
        ("LEASE_SECONDS", "1.5"),
        ("LEASE_SECONDS", "none"),
        ("LEASE_SECONDS", SECRET),
        ("OUTPUT_RETENTION", "0"),
        ("OUTPUT_RETENTION", "36501"),
        ("OUTPUT_RETENTION", "forever"),
        ("OUTPUT_RETENTION", "7h"),
        ("OUTPUT_RETENTION", "d"),
        ("NAMESPACE", "x" * 257),
        ("NAMESPACE", "a\x01b"),
        ("OUTPUT_KEYS", SECRET),
        ("OUTPUT_KEYS", "k1:YWJj"),
        ("OUTPUT_KEYS", ","),
        ("DIGEST_KEY", SECRET),
        ("DIGEST_KEY", "d1:YWJj"),
        ("DIGEST_KEY", RING),
        ("DIGEST_KEY", ","),
    ],
)
def test_bad_values_are_refused_by_name(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """The error names the setting, and neither it nor its printed traceback repeats a secret."""
    monkeypatch.setenv(f"MEMOFLOW_{name}", value)
    with pytest.raises(ConfigurationError, match=f"MEMOFLOW_{name}") as caught:
        MemoflowSettings()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "table",
    [
        "lease_seconds = true",
        "lease_seconds = 30.0",
        'lease_seconds = "many"',
        "output_retention = false",
        "output_keys = 5",
        "namespace = ['a']",
        "database_url = ''",
        "lease = 5",
        f"output_key = '{SECRET}'",
    ],
)
def test_bad_tables_are_refused(project: Path, table: str) -> None:
    """Wrong types and misspelt keys in the table are errors that name the key, never ignored."""
    write(project, f"[tool.memoflow]\n{table}\n")
    name = table.partition(" ")[0]
    with pytest.raises(ConfigurationError) as caught:
        MemoflowSettings()
    assert f"{name} in [tool.memoflow] of {str(project / 'pyproject.toml')!r}: " in str(caught.value)
    assert SECRET not in str(caught.value)


def test_unknown_arguments_are_refused() -> None:
    """A misspelt argument is an error too."""
    with pytest.raises(ConfigurationError, match="the argument lease: "):
        MemoflowSettings(lease=5)


@pytest.mark.parametrize("text", [f'[tool.memoflow\nx = "{SECRET}"', "[tool]\nmemoflow = 5", "\udcff"])
def test_a_file_that_cannot_be_read_as_settings_is_named(project: Path, text: str) -> None:
    """Broken TOML or a value in place of the table is an error that names the file."""
    (project / "pyproject.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigurationError, match=r"pyproject\.toml") as caught:
        MemoflowSettings()
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("text", ["", "[tool]\n", "tool = 5\n", "[tool.other]\nx = 1\n"])
def test_files_without_the_table_say_nothing(project: Path, text: str) -> None:
    """Other people's tables are none of our business."""
    write(project, text)
    assert MemoflowSettings() == MemoflowSettings(namespace="default")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DATABASE_ULR", "DATABASE_URL"),
        ("OUTPUT_KEY", "OUTPUT_KEYS"),
        ("DIGEST_KEYS", "DIGEST_KEY"),
        ("LEASE_SECS", "LEASE_SECONDS"),
        ("OUTPUT_RETENTION_DAYS", "OUTPUT_RETENTION"),
        ("name_space", "NAMESPACE"),
    ],
)
def test_misspelt_variables_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, meant: str) -> None:
    """A setting that is silently not read is worse than none; its value is not repeated."""
    monkeypatch.setenv(f"MEMOFLOW_{name}", SECRET)
    with pytest.raises(ConfigurationError, match=f"MEMOFLOW_{name} .*MEMOFLOW_{meant}\\?") as caught:
        MemoflowSettings()
    assert SECRET not in str(caught.value)


def test_other_variables_are_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They may be anybody's own; those of this project's programs are known, an empty one is unset."""
    monkeypatch.setenv("MEMOFLOW_REGION", SECRET)
    monkeypatch.setenv("MEMOFLOW_OUTPUT_KEY", "")
    for name in ("TEST_POSTGRES_URL", "BENCH_POSTGRES_URL", "OPENAI_LIVE", "ANTHROPIC_MODEL"):
        monkeypatch.setenv(f"MEMOFLOW_{name}", "any")
    MemoflowSettings()
    MemoflowSettings()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "MEMOFLOW_REGION is not a setting" in warning
    assert "MEMOFLOW_DATABASE_URL" in warning
    assert SECRET not in warning


def test_secrets_are_not_shown() -> None:
    """repr and str hide keys and the database URL, which may hold a password."""
    settings = MemoflowSettings(
        database_url="postgresql://u:password@h/d", output_keys=RING, digest_key=f"d1:{SECRET}"
    )
    for text in (repr(settings), str(settings)):
        assert SECRET not in text
        assert "password" not in text


def test_settings_do_not_change() -> None:
    """A runtime that read them can rely on them."""
    with pytest.raises(ValueError, match="frozen"):
        MemoflowSettings().namespace = "other"  # type: ignore[misc]


def test_a_directory_that_is_gone_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose working directory was removed has no table, and still starts."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert MemoflowSettings().namespace == "default"


def test_the_package_does_not_load_settings() -> None:
    """``import memoflow`` stays light: pydantic-settings and cryptography come when they are needed."""
    program = (
        "import sys, memoflow, memoflow.keyring, memoflow.canonical, memoflow.pricing\n"
        "heavy = {'pydantic_settings', 'cryptography', 'genai_prices', 'rfc8785'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
