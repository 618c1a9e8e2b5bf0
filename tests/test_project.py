"""The project itself: imports point inward, the README tells all, the wheel holds all."""

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from telegrammer.settings import SETTINGS, Setting
from telegrammer_api import pages
from telegrammer_api.errors import Code
from telegrammer_api.pages import Page
from telegrammer_cli.__main__ import commands

REPOSITORY: Final = Path(__file__).parents[1]

# What each room of the library may import of the others; "" is the package itself. A
# room that has no line here fails: it needs a rule first.
LIBRARY: Final[dict[str, set[str]]] = {
    "": set(),
    "errors": set(),
    "model": set(),
    "clock": set(),
    "backoff": set(),
    "logs": set(),
    "notification": set(),
    "settings": {"errors"},
    "tls": {"errors"},
    "process": {"errors"},
    "options": {"", "errors", "logs", "settings"},
    "http": {"", "clock", "errors", "settings", "tls"},
    "store": {"errors", "model"},
    "telegram": {"errors", "http", "model", "settings"},
    "callbacks": {"", "errors", "tls"},
    "heartbeat": {"clock", "errors", "logs", "model", "process", "store"},
    "health": {"heartbeat", "model", "store"},
}

SERVICES: Final = {
    "telegrammer_api",
    "telegrammer_cli",
    "telegrammer_demo",
    "telegrammer_dispatcher",
    "telegrammer_poller",
    "telegrammer_sandbox",
}

# Packages that have one home each.
HOMES: Final = {
    "sqlite3": ("telegrammer.store",),
    "requests": ("telegrammer.http",),
    "urllib3": ("telegrammer.http",),
    "socksio": ("telegrammer.http",),
    "ssl": ("telegrammer.http", "telegrammer.tls"),
    "pycurl": ("telegrammer.callbacks",),
    "filelock": ("telegrammer.process",),
    "inotify_simple": ("telegrammer.notification",),
    "falcon": ("telegrammer_api",),
    "gunicorn": ("telegrammer_api",),
    "click": ("telegrammer.options", "telegrammer_cli", "telegrammer_sandbox", "telegrammer_demo"),
}

STATEMENT: Final = re.compile(
    r"\b(SELECT .+ FROM|INSERT (OR \w+ )?INTO|UPDATE \w+ SET|DELETE FROM|CREATE TABLE|PRAGMA \w+)\b"
)


class Module:
    """One of our source files: its dotted name, its room, what it imports."""

    def __init__(self, path: Path, root: Path) -> None:
        parts = path.relative_to(root).with_suffix("").parts
        self.name = ".".join(parts).removesuffix(".__init__")
        self.package = parts[0]
        self.tree = ast.parse(path.read_text())

    @property
    def room(self) -> str:
        """Return the room in the library, "" for its ``__init__``."""
        return self.name.removeprefix("telegrammer").lstrip(".").split(".")[0]

    def imports(self) -> Iterator[str]:
        """Yield dotted names; ``from telegrammer import logs`` is ``telegrammer.logs``."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}: a relative import"
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    yield name if name in NAMES else str(node.module)


FILES: Final = [
    (path, REPOSITORY / root)
    for root in ("shared", "services")
    for path in sorted((REPOSITORY / root).rglob("*.py"))
    if not any(part.endswith(".egg-info") for part in path.parts)
]
MODULES: Final = [Module(path, root) for path, root in FILES]
NAMES: Final = {module.name for module in MODULES}


def is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_imports_point_inward(module: Module) -> None:
    """A service imports the library and itself; a room of the library, what its rule says."""
    ours = [name for name in module.imports() if name.split(".")[0].startswith("telegrammer")]
    if module.package in SERVICES:
        assert {name.split(".")[0] for name in ours} <= {"telegrammer", module.package}
        return
    assert module.package == "telegrammer", "a package that has no rule"
    rooms = {name.removeprefix("telegrammer").lstrip(".").split(".")[0] for name in ours}
    assert rooms <= LIBRARY[module.room] | {module.room}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_each_package_has_its_home(module: Module) -> None:
    """SQLite, requests, libcurl and the like are imported in their rooms alone."""
    for name in module.imports():
        homes = HOMES.get(name.split(".")[0])
        assert homes is None or any(is_in(module.name, home) for home in homes), name


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_sql_stands_in_the_store_alone(module: Module) -> None:
    """No text outside the store is a statement."""
    if is_in(module.name, "telegrammer.store"):
        return
    texts = [node.value for node in ast.walk(module.tree) if isinstance(node, ast.Constant)]

    assert [text for text in texts if isinstance(text, str) and STATEMENT.search(text)] == []


def test_the_rules_find_what_they_forbid() -> None:
    """The modules are all there, and the store is where the statements are."""
    assert {"telegrammer.store.connection", "telegrammer_api.app"} <= NAMES
    assert {module.package for module in MODULES} == SERVICES | {"telegrammer"}
    store = [module for module in MODULES if is_in(module.name, "telegrammer.store")]
    texts = [node.value for module in store for node in ast.walk(module.tree)
             if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
    assert sum(bool(STATEMENT.search(text)) for text in texts) > 10


def readme() -> str:
    return (REPOSITORY / "README.md").read_text()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.variable)
def test_each_setting_is_in_the_readme(setting: Setting) -> None:
    """The settings table has each variable with its default."""
    row = re.search(rf"^\| .*`{setting.variable}`.* \| (.*?) \| .+ \|$", readme(), re.M)

    assert row, f"{setting.variable} has no row"
    if isinstance(setting.default, str):
        assert row[1] == (f"`{setting.default}`" if setting.default else "none")


def test_each_route_is_in_the_readme() -> None:
    """Every method that a path offers stands there as `METHOD /path`."""
    app = next(module for module in MODULES if module.name == "telegrammer_api.app")
    routes = [str(node.value) for node in ast.walk(app.tree) if isinstance(node, ast.Constant)]
    assert sorted(route for route in routes if route.startswith("/")) == [
        "/health", "/send", "/subscribe", "/subscriptions", "/subscriptions/{subscription_id}",
    ]  # fmt: skip
    for offered in ("GET /health", "POST /send", "POST /subscribe", "GET /subscriptions",
                    "DELETE /subscriptions/{id}"):  # fmt: skip
        assert f"### {offered}\n" in readme()


@pytest.mark.parametrize("name", sorted(commands.commands))
def test_each_command_is_in_the_readme(name: str) -> None:
    """Every command of the operator stands there with the program's name."""
    assert f"`telegrammer {name}" in readme()


def test_each_error_code_is_in_the_readme() -> None:
    """Programs depend on the codes: each has a row with its status, and no other has."""
    found = {(code.status, code.name) for code in Code}
    found |= {(page.status, page.code) for page in vars(pages).values() if isinstance(page, Page)}

    rows = re.findall(r"^\| ([0-9]{3}) `([A-Z_]+)` \|", readme(), re.M)

    assert {(int(status), code) for status, code in rows} == found


def test_each_exit_status_is_in_the_readme() -> None:
    """Each exit status has a row."""
    rows = re.findall(r"^\| (\d+) \| .+ \|$", readme(), re.M)

    assert {"0", "1", "2", "75", "78"} <= set(rows)


def test_links_lead_somewhere() -> None:
    """Every relative link and every anchor in README and docs exists."""
    for file in (REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)]+)\)", file.read_text()):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            other = (file.parent / path) if path else file
            assert other.exists(), f"{file.name}: {target}"
            assert not anchor or anchor in anchors(other), f"{file.name}: {target}"


def anchors(file: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", file.read_text(), re.M)
    return {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_wheel_holds_everything(tmp_path: Path) -> None:
    """A wheel of the sources has every module, the SQL, the page, py.typed and the commands."""
    source = tmp_path / "source"
    for name in ("shared", "services"):
        ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
        shutil.copytree(REPOSITORY / name, source / name, ignore=ignored)
    for name in ("pyproject.toml", "setup.cfg", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*pip, "--no-index", "--wheel-dir", str(tmp_path), str(source)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())

    assert {str(path.relative_to(root)) for path, root in FILES} <= held
    assert {
        "telegrammer/py.typed",
        "telegrammer/store/schema.sql",
        "telegrammer_sandbox/page.html",
    } <= held
    assert not any(name.startswith("tests") for name in held)
